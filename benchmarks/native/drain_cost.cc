// What the drain takes per event of a recording, from the ring to the file, and how much of that is
// reading the ring and encoding:
//
//   drain_cost PATH [--loop] TRACE...     PATH: the file to write; --loop: the events of ring_push
//
// Another thread fills the ring, so that its lines lie in another core's cache where there is one,
// and gives each event the time that it has in the trace. Prints a JSON object a line: ns of the
// draining thread's processor time per event, each pass at its best of several runs.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "capture/drain.h"
#include "capture/segment.h"
#include "paced_producer.h"
#include "trace/event_buffer.h"
#include "trace/history_encoder.h"
#include "trace/reader.h"
#include "trace/sink.h"

namespace {

using namespace gpumemtrace;
using namespace gpumemtrace::capture;

constexpr std::size_t kEvents = 1'000'000;
constexpr std::size_t kPassEvents = 25'000;  // 5 ms at 5 M events/s
constexpr std::size_t kBatch = 256;          // as the drain's
constexpr std::size_t kRingSlots = std::size_t{1} << 17;
constexpr std::uint64_t kResolutionNs = 100;
constexpr int kRuns = 10;

// Repeats a short trace until there is enough to measure.
std::vector<Event> events_of(const char* path) {
  Reader reader(std::make_unique<FileSource>(path));
  EventBuffer buffer;
  const std::size_t chunks = reader.chunks().size();
  const auto count = static_cast<std::size_t>(reader.count(0, chunks));
  const EventColumns columns = buffer.columns(count);
  reader.read(0, chunks, columns);
  std::vector<Event> events;
  std::uint64_t offset = 0;
  while (count != 0 && events.size() < kEvents) {
    for (std::size_t i = 0; i < count && events.size() < kEvents; ++i) {
      events.push_back({static_cast<std::uint64_t>(columns.time_ns[i]) + offset, columns.address[i],
                        columns.size_bytes[i], columns.stream[i], columns.extra[i],
                        columns.thread[i], columns.site[i], columns.flags[i], columns.device[i],
                        static_cast<Kind>(columns.kind[i])});
    }
    offset = events.back().time + 1000;
  }
  return events;
}

std::vector<Event> looping_events() {
  std::vector<Event> events;
  for (std::uint64_t i = 0; i < kEvents; ++i) {
    events.push_back(nth_event(0, i));
    events.back().time = 200 * i;
  }
  return events;
}

double cpu_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

// The shortest time of each pass in several runs, summed up.
class BestTimes {
 public:
  template <class Work>
  void measure(std::size_t pass, Work work) {
    const double begin = cpu_ns();
    work();
    const double took = cpu_ns() - begin;
    if (best_ns_.size() <= pass) best_ns_.resize(pass + 1, 1e300);
    best_ns_[pass] = std::min(best_ns_[pass], took);
  }
  double per_event() const {
    double sum = 0;
    for (const double ns : best_ns_) sum += ns;
    return sum / static_cast<double>(kEvents);
  }

 private:
  std::vector<double> best_ns_;
};

// Ring and slots, and events put there as if at their times.
class Fed {
 public:
  Fed()
      : segment_({.ring_capacity = kRingSlots}),
        ring_({.capacity = kRingSlots, .memory = segment_.ring_memory()}) {
    begin_ = read_clock_pair();
    const std::uint64_t until = begin_.ns + 20'000'000;
    while (monotonic_ns() < until) {
    }
    const ClockPair now = read_clock_pair();
    ticks_per_ns_ =
        static_cast<double>(now.ticks - begin_.ticks) / static_cast<double>(now.ns - begin_.ns);
    // The trace began a day ago: all of its times have passed.
    const std::uint64_t day_ns = 86'400ULL * 1'000'000'000;
    begin_.ns -= day_ns;
    begin_.ticks -= static_cast<std::uint64_t>(static_cast<double>(day_ns) * ticks_per_ns_);
  }

  void push(const std::vector<Event>& events, std::size_t first, std::size_t count) {
    std::thread([&] {
      auto* const slots = static_cast<Slot*>(segment_.ring_memory());
      for (std::size_t i = first; i < first + count; ++i) {
        Event event = events[i];
        const std::uint64_t position = ring_.head();
        ring_.push(event);
        slots[position % kRingSlots].event.time =
            begin_.ticks +
            static_cast<std::uint64_t>(static_cast<double>(events[i].time) * ticks_per_ns_);
      }
    }).join();
  }

  Segment& segment() { return segment_; }
  Ring& ring() { return ring_; }
  const ClockPair& begin() const { return begin_; }

 private:
  Segment segment_;
  Ring ring_;
  ClockPair begin_;
  double ticks_per_ns_ = 1.0;
};

template <class Work>
void each_pass(Fed& fed, const std::vector<Event>& events, BestTimes& times, Work work) {
  for (std::size_t first = 0; first < events.size(); first += kPassEvents) {
    const std::size_t count = std::min(kPassEvents, events.size() - first);
    fed.push(events, first, count);
    times.measure(first / kPassEvents, [&] { work(first, count); });
  }
}

void measure(const char* name, const std::string& path, const std::vector<Event>& events) {
  BestTimes drain_times;
  BestTimes read_times;
  BestTimes encode_times;
  double bytes = 0;
  for (int run = 0; run < kRuns; ++run) {
    {
      Fed fed;
      DrainOptions options;
      options.ring = &fed.ring();
      options.segment = &fed.segment();
      options.output.make_sink = [&] { return std::make_unique<FileSink>(path, true); };
      options.output.path = path;
      options.output.time_resolution_ns = kResolutionNs;
      options.output.stage = fed.segment().stage();
      options.output.warn = [](const std::string& what) { std::fputs(what.c_str(), stderr); };
      Drain drain(options, fed.begin());
      drain.open();
      each_pass(fed, events, drain_times, [&](std::size_t, std::size_t) { drain.pass(); });
      drain.finish("{}");
      bytes = static_cast<double>(drain.stats().bytes_written);
    }
    Fed fed;
    std::vector<Event> batch(kBatch);
    each_pass(fed, events, read_times, [&](std::size_t, std::size_t) {
      while (fed.ring().pop(batch.data(), kBatch, fed.ring().tail() + kRingSlots) != 0) {
      }
    });
    HistoryEncoder encoder;
    std::vector<std::uint8_t> payload;
    for (std::size_t first = 0; first < events.size(); first += kPassEvents) {
      const std::size_t count = std::min(kPassEvents, events.size() - first);
      encode_times.measure(first / kPassEvents, [&] {
        payload.clear();
        encoder.encode(events.data() + first, count, kResolutionNs, payload);
      });
    }
  }
  std::printf(
      "{\"trace\": \"%s\", \"drain_ns\": %.1f, \"read_ring_ns\": %.1f, \"encode_ns\": %.1f, "
      "\"bytes_per_event\": %.3f}\n",
      name, drain_times.per_event(), read_times.per_event(), encode_times.per_event(),
      bytes / static_cast<double>(events.size()));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: drain_cost PATH [--loop] TRACE...\n");
    return 2;
  }
  try {
    for (int i = 2; i < argc; ++i) {
      const bool is_loop = std::strcmp(argv[i], "--loop") == 0;
      measure(is_loop ? "loop" : argv[i], argv[1], is_loop ? looping_events() : events_of(argv[i]));
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "drain_cost: %s\n", error.what());
    return 1;
  }
}
