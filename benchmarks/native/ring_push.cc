// What a push costs its thread, beside what reading the clock costs, in one run; and what the whole
// pipeline (ring, drain, encoder, file) loses at a given rate. Prints one JSON object a line.
//
//   ring_push push                              push against rdtsc, one and two producers; into
//                                               shared memory, as sessions do, and into private
//   ring_push paced                             percentiles of single pushes after cache-disturbing work
//   ring_push pipeline PATH RATE SECONDS THREADS RING_BYTES
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "capture/clock.h"
#include "capture/producer.h"
#include "capture/segment.h"
#include "capture/session.h"
#include "paced_producer.h"

namespace {

using namespace gpumemtrace;
using namespace gpumemtrace::capture;

constexpr std::size_t kRingSlots = std::size_t{1} << 17;  // 8 MiB, the product's default

double g_ns_per_tick = 1.0;

void measure_tick() {
  const ClockPair begin = read_clock_pair();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const ClockPair end = read_clock_pair();
  g_ns_per_tick =
      static_cast<double>(end.ns - begin.ns) / static_cast<double>(end.ticks - begin.ticks);
}

double percentile(std::vector<double>& values, double share) {
  const auto at = static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<std::size_t>(at)];
}

// As the allocator hook fills it: a few fields known, the rest zero.
[[gnu::noinline]] bool push_alloc(Ring* ring, std::uint64_t address, std::uint64_t size) {
  Event event{};
  event.kind = Kind::kAlloc;
  event.address = address;
  event.size = size;
  return push(ring, event);
}

// Empties the ring every 5 ms, as the drain does, and throws the events away.
class Consumer {
 public:
  explicit Consumer(Ring& ring) : ring_(ring), thread_([this] { run(); }) {}
  ~Consumer() {
    stop_ = true;
    thread_.join();
  }

 private:
  void run() {
    std::vector<Event> batch(1024);
    while (!stop_) {
      const std::uint64_t end = ring_.tail() + ring_.capacity();
      while (ring_.pop(batch.data(), batch.size(), end) != 0) {
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  Ring& ring_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

constexpr int kBurst = 512;

template <typename Work>
double burst_ns(Work&& work) {
  const std::uint64_t begin = ticks();
  for (int i = 0; i < kBurst; ++i) work(static_cast<std::uint64_t>(i));
  return static_cast<double>(ticks() - begin) * g_ns_per_tick / kBurst;
}

// Where two threads wait for each other, so that their bursts meet.
class Meeting {
 public:
  void arrive(int turn) {
    arrived_.fetch_add(1);
    while (arrived_.load() < 2 * (turn + 1)) {
    }
  }

 private:
  std::atomic<int> arrived_{0};
};

// Bursts with a pause between them, so that the ring never fills.
std::vector<double> push_bursts(Ring& ring, int bursts, Meeting* meeting = nullptr) {
  std::vector<double> costs;
  for (int burst = 0; burst < bursts; ++burst) {
    if (meeting != nullptr) meeting->arrive(burst);
    costs.push_back(burst_ns([&](std::uint64_t i) { push_alloc(&ring, i, 512); }));
    const std::uint64_t until = monotonic_ns() + 100'000;
    while (monotonic_ns() < until) {
    }
  }
  return costs;
}

void bench_push() {
  std::uint64_t sum = 0;
  std::vector<double> clock;
  std::vector<double> floor;  // what no such ring can do without: the clock and a fetch_add
  std::atomic<std::uint64_t> counter{0};
  std::vector<double> single;
  std::vector<double> both;
  std::vector<double> in_private;
  const Segment segment({.ring_capacity = kRingSlots});
  Ring ring({.capacity = kRingSlots, .memory = segment.ring_memory()});
  Ring private_ring({.capacity = kRingSlots});
  const Consumer consumer(ring);
  const Consumer private_consumer(private_ring);
  for (int round = 0; round < 20; ++round) {  // interleaved: the same weather for all
    for (int i = 0; i < 100; ++i) clock.push_back(burst_ns([&](std::uint64_t) { sum += ticks(); }));
    for (int i = 0; i < 100; ++i) {
      floor.push_back(burst_ns([&](std::uint64_t) { sum += ticks() + counter.fetch_add(1); }));
    }
    const auto costs = push_bursts(ring, 200);
    single.insert(single.end(), costs.begin(), costs.end());
    const auto others = push_bursts(private_ring, 200);
    in_private.insert(in_private.end(), others.begin(), others.end());
    std::vector<double> other;
    Meeting meeting;
    std::thread second([&] { other = push_bursts(ring, 200, &meeting); });
    const auto mine = push_bursts(ring, 200, &meeting);
    second.join();
    both.insert(both.end(), mine.begin(), mine.end());
    both.insert(both.end(), other.begin(), other.end());
  }
  const double rdtsc = percentile(clock, 0.5);
  const double push_ns = percentile(single, 0.5);
  const double two_ns = percentile(both, 0.5);
  std::printf(
      "{\"bench\":\"push\",\"rdtsc_ns\":%.2f,\"rdtsc_and_fetch_add_ns\":%.2f,\"push_ns\":%.2f,"
      "\"push_p10_ns\":%.2f,\"shared\":%s,\"push_private_ns\":%.2f,\"push_private_p10_ns\":%.2f,"
      "\"two_producers_ns\":%.2f,\"ratio\":%.3f,\"ratio_two\":%.3f,\"lost\":%llu,\"sink\":%d}\n",
      rdtsc, percentile(floor, 0.5), push_ns, percentile(single, 0.1),
      segment.why_private().empty() ? "true" : "false", percentile(in_private, 0.5),
      percentile(in_private, 0.1), two_ns, push_ns / rdtsc, two_ns / rdtsc,
      static_cast<unsigned long long>(ring.take_loss().events), static_cast<int>(sum & 1));
}

// One push at a time, after 1 MB of other memory traffic, timed by itself; in turn with the same
// for the clock alone and for the clock and a fetch_add.
void bench_paced() {
  const Segment segment({.ring_capacity = kRingSlots});
  Ring ring({.capacity = kRingSlots, .memory = segment.ring_memory()});
  const Consumer consumer(ring);
  std::vector<char> traffic(std::size_t{1} << 20);
  alignas(128) std::atomic<std::uint64_t> counter{0};
  std::vector<double> costs[3];
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < 90'000; ++i) {
    for (std::size_t at = 0; at < traffic.size(); at += 64) traffic[at] = static_cast<char>(i);
    sum += static_cast<unsigned char>(traffic[i % traffic.size()]);
    std::atomic_thread_fence(std::memory_order_seq_cst);  // the traffic's own stores are over
    sum += ticks();
    const std::uint64_t begin = ticks();
    if (i % 3 == 1) {
      sum += ticks() + counter.fetch_add(1);
    } else if (i % 3 == 2) {
      push_alloc(&ring, i, 512);
    }
    costs[i % 3].push_back(static_cast<double>(ticks() - begin) * g_ns_per_tick);
  }
  std::printf("{\"bench\":\"paced\",\"sink\":%d", static_cast<int>(sum & 1));
  const char* names[] = {"rdtsc", "rdtsc_and_fetch_add", "push"};
  for (std::size_t i = 0; i < 3; ++i) {
    std::printf(",\"%s\":{\"p50_ns\":%.1f,\"p99_ns\":%.1f,\"p999_ns\":%.1f}", names[i],
                percentile(costs[i], 0.5), percentile(costs[i], 0.99), percentile(costs[i], 0.999));
  }
  std::printf("}\n");
}

void bench_pipeline(const std::string& path, double per_second, double seconds, unsigned threads,
                    std::uint64_t ring_bytes) {
  SessionOptions options;
  options.path = path;
  options.overwrite = true;
  options.ring_bytes = ring_bytes;
  start_session(options);
  std::atomic<std::uint64_t> made{0};
  std::atomic<std::uint64_t> refused{0};
  const std::uint64_t begin = monotonic_ns();
  std::vector<std::thread> producers;
  for (unsigned lane = 0; lane < threads; ++lane) {
    producers.emplace_back(
        [&, lane] { produce(lane, per_second / threads, seconds, made, refused); });
  }
  for (auto& producer : producers) producer.join();
  const double took = static_cast<double>(monotonic_ns() - begin) / 1e9;
  const SessionStats stats = stop_session("{}");
  const auto count = static_cast<double>(made.load());
  std::printf(
      "{\"bench\":\"pipeline\",\"wanted_per_s\":%.0f,\"reached_per_s\":%.0f,\"seconds\":%.2f,"
      "\"threads\":%u,\"ring_events\":%llu,\"events\":%.0f,\"dropped\":%llu,\"refused\":%llu,"
      "\"high_water\":%llu,\"drain_cpu_share\":%.4f,\"drain_ns_per_event\":%.2f,"
      "\"bytes_per_event\":%.3f}\n",
      per_second, count / took, took, threads, static_cast<unsigned long long>(stats.ring_capacity),
      count, static_cast<unsigned long long>(stats.dropped),
      static_cast<unsigned long long>(refused.load()),
      static_cast<unsigned long long>(stats.ring_high_water),
      static_cast<double>(stats.drain_cpu_ns) / 1e9 / took,
      static_cast<double>(stats.drain_cpu_ns) / count,
      static_cast<double>(stats.bytes_written) / count);
}

}  // namespace

int main(int argc, char** argv) {
  measure_tick();
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "push") {
    bench_push();
  } else if (what == "paced") {
    bench_paced();
  } else if (what == "pipeline" && argc == 7) {
    bench_pipeline(argv[2], std::atof(argv[3]), std::atof(argv[4]),
                   static_cast<unsigned>(std::atoi(argv[5])), std::strtoull(argv[6], nullptr, 10));
  } else {
    std::fprintf(stderr,
                 "usage: ring_push push | paced | pipeline PATH RATE SECONDS THREADS BYTES\n");
    return 2;
  }
  return 0;
}
