// What a limit of disk space takes per event, and how long it keeps the drain from the ring:
//
//   ageing_cost PATH EVENTS RATE MAX_DISK_BYTES --loop|TRACE...   PATH: the file to write
//
// Events come as the drain takes them, in batches of 256: those of ring_push, or of a trace again and
// again. Prints a JSON object a line: ns of processor time per event, for writing and for ageing; the
// longest that one call took; and what the ring must hold if events come at RATE a second, on a core
// that does nothing else (computed from the processor time of each batch, so that what others do to
// the machine hardly counts).
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "ageing/ageing.h"
#include "paced_producer.h"
#include "recording.h"
#include "trace/sink.h"

namespace {

using namespace gpumemtrace;
using namespace gpumemtrace::ageing;

constexpr std::size_t kBatch = 256;  // as the drain's
constexpr std::uint64_t kResolutionNs = 100;
constexpr std::size_t kEnough = 1'000'000;

std::vector<Event> looping_events() {
  std::vector<Event> events;
  for (std::uint64_t i = 0; i < kEnough; ++i) {
    events.push_back(capture::nth_event(0, i));
    events.back().time = 200 * i;
  }
  return events;
}

// A recording without end. What was in use when it began is told once.
class Endless {
 public:
  explicit Endless(std::vector<Event> events) : events_(std::move(events)) {}

  void next(std::vector<Event>& batch) {
    batch.clear();
    while (batch.size() < kBatch) {
      Event event = events_[at_];
      event.time += offset_;
      const bool is_told = offset_ == 0 || !is_baseline(event);
      if (is_told) batch.push_back(event);
      if (++at_ < events_.size()) continue;
      at_ = 0;
      offset_ = event.time + 1000;
    }
  }

 private:
  std::vector<Event> events_;
  std::size_t at_ = 0;
  std::uint64_t offset_ = 0;
};

double resident_mib() {
  unsigned long pages[2] = {};
  std::FILE* const file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr || std::fscanf(file, "%lu %lu", &pages[0], &pages[1]) != 2) return 0;
  std::fclose(file);
  return static_cast<double>(pages[1]) * static_cast<double>(::sysconf(_SC_PAGESIZE)) / (1 << 20);
}

void measure(const char* name, const char* path, double events, double per_second,
             std::uint64_t most_bytes, std::vector<Event> recording) {
  Endless run(std::move(recording));
  auto writer = std::make_unique<Writer>(
      std::make_unique<FileSink>(path, true),
      Ageing::prepare({.time_resolution_ns = kResolutionNs, .trace_id = 1}, most_bytes));
  Ageing ageing(most_bytes, *writer);
  std::vector<Event> batch;
  double writing_ns = 0, ageing_ns = 0, longest_ns = 0;
  double arrived_ns = 0, done_ns = 0, most_late_ns = 0;
  double resident_before = 0, most_resident = 0;
  std::uint64_t most_on_disk = 0;
  double count = 0;
  for (std::uint64_t round = 0; count < events && writer->error()[0] == '\0'; ++round) {
    run.next(batch);
    const double begin = cpu_ns();
    writer->append(batch.data(), batch.size());
    const double between = cpu_ns();
    if (ageing.work(*writer)) ageing.replace(writer);
    const double end = cpu_ns();
    writing_ns += between - begin;
    ageing_ns += end - between;
    longest_ns = std::max(longest_ns, end - between);
    count += static_cast<double>(batch.size());
    arrived_ns = count / per_second * 1e9;
    done_ns = std::max(done_ns, arrived_ns) + end - begin;
    most_late_ns = std::max(most_late_ns, done_ns - arrived_ns);
    const std::uint64_t other = ageing.smaller() != nullptr ? ageing.smaller()->bytes_written() : 0;
    most_on_disk = std::max(most_on_disk, writer->bytes_written() + other);
    if (round % 64 != 0) continue;
    const double resident = resident_mib();
    if (ageing.rounds() == 0 && other == 0) resident_before = resident;
    most_resident = std::max(most_resident, resident);
  }
  std::printf(
      "{\"trace\": \"%s\", \"writing_ns\": %.1f, \"ageing_ns\": %.1f, \"longest_ms\": %.2f, "
      "\"ring_records\": %.0f, \"rounds\": %llu, \"ageing_mib\": %.1f, \"most_on_disk_mib\": %.2f, "
      "\"why\": \"%s\", \"error\": \"%s\"}\n",
      name, writing_ns / count, ageing_ns / count, longest_ns / 1e6,
      most_late_ns * per_second / 1e9, static_cast<unsigned long long>(ageing.rounds()),
      most_resident - resident_before, static_cast<double>(most_on_disk) / (1 << 20),
      ageing.why().c_str(), writer->error());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) {
    std::fprintf(stderr, "usage: ageing_cost PATH EVENTS RATE MAX_DISK_BYTES --loop|TRACE...\n");
    return 2;
  }
  try {
    for (int i = 5; i < argc; ++i) {
      const bool is_loop = std::strcmp(argv[i], "--loop") == 0;
      measure(is_loop ? "loop" : argv[i], argv[1], std::atof(argv[2]), std::atof(argv[3]),
              std::strtoull(argv[4], nullptr, 10),
              is_loop ? looping_events() : events_of(argv[i], kEnough));
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ageing_cost: %s\n", error.what());
    return 1;
  }
}
