// A recording as the benchmarks take it, and how they time what is done with it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <numeric>
#include <vector>

#include "trace/event_buffer.h"
#include "trace/reader.h"

namespace gpumemtrace {

// The events of a trace file. A short one is repeated until there are enough to measure.
inline std::vector<Event> events_of(const char* path, std::size_t enough) {
  Reader reader(std::make_unique<FileSource>(path));
  EventBuffer buffer;
  const std::size_t chunks = reader.chunks().size();
  const auto count = static_cast<std::size_t>(reader.count(0, chunks));
  const EventColumns columns = buffer.columns(count);
  reader.read(0, chunks, columns);
  std::vector<Event> events;
  std::uint64_t offset = 0;
  while (count != 0 && events.size() < enough) {
    for (std::size_t i = 0; i < count; ++i) {
      events.push_back({static_cast<std::uint64_t>(columns.time_ns[i]) + offset, columns.address[i],
                        columns.size_bytes[i], columns.stream[i], columns.extra[i],
                        columns.thread[i], columns.site[i], columns.flags[i], columns.device[i],
                        static_cast<Kind>(columns.kind[i])});
    }
    offset = events.back().time + 1000;
  }
  return events;
}

// ns of this thread's processor time.
inline double cpu_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

// The shortest time of each piece of work in several runs, summed up: what others do to the machine
// meanwhile seldom hits the same piece every time.
class BestTimes {
 public:
  template <class Work>
  void measure(std::size_t piece, Work work) {
    if (best_ns_.size() <= piece) best_ns_.resize(piece + 1, 1e300);
    const double begin = cpu_ns();
    work();
    best_ns_[piece] = std::min(best_ns_[piece], cpu_ns() - begin);
  }
  double sum_ns() const { return std::accumulate(best_ns_.begin(), best_ns_.end(), 0.0); }

 private:
  std::vector<double> best_ns_;
};

}  // namespace gpumemtrace
