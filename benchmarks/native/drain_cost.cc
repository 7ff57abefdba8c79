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
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "capture/drain.h"
#include "capture/segment.h"
#include "paced_producer.h"
#include "recording.h"
#include "trace/history_encoder.h"
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

// As many as the loop has.
std::vector<Event> recorded_events(const char* path) {
  std::vector<Event> events = events_of(path, kEvents);
  events.resize(std::min(events.size(), kEvents));
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
  const auto count = static_cast<double>(events.size());
  std::printf(
      "{\"trace\": \"%s\", \"drain_ns\": %.1f, \"read_ring_ns\": %.1f, \"encode_ns\": %.1f, "
      "\"bytes_per_event\": %.3f}\n",
      name, drain_times.sum_ns() / count, read_times.sum_ns() / count,
      encode_times.sum_ns() / count, bytes / count);
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
      measure(is_loop ? "loop" : argv[i], argv[1],
              is_loop ? looping_events() : recorded_events(argv[i]));
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "drain_cost: %s\n", error.what());
    return 1;
  }
}
