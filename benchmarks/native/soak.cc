// A long recording through the real pipeline (ring, drain, encoder, file), watched meanwhile. Prints
// a JSON object for each look at it, and one at the end.
//
//   soak PATH EVENTS RATE RING_BYTES SECONDS_BETWEEN_LOOKS MAX_DISK_BYTES (0 = no limit)
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <system_error>
#include <thread>

#include "capture/clock.h"
#include "capture/session.h"
#include "paced_producer.h"
#include "trace/event_buffer.h"
#include "trace/reader.h"

namespace {

using namespace gpumemtrace::capture;

std::uint64_t resident_bytes() {
  unsigned long long size = 0;
  unsigned long long resident = 0;
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr || std::fscanf(file, "%llu %llu", &size, &resident) != 2) std::abort();
  std::fclose(file);
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

// What our open files in the trace's folder take, those without a name too.
std::uint64_t disk_bytes(const std::string& path) {
  namespace fs = std::filesystem;
  const std::string folder = fs::absolute(path).parent_path().string() + '/';
  std::map<ino_t, std::uint64_t> sizes;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code closed_meanwhile;
    const std::string target = fs::read_symlink(entry.path(), closed_meanwhile).string();
    struct stat status {};
    if (target.starts_with(folder) && ::stat(entry.path().c_str(), &status) == 0) {
      sizes[status.st_ino] = static_cast<std::uint64_t>(status.st_size);
    }
  }
  std::uint64_t sum = 0;
  for (const auto& [inode, size] : sizes) sum += size;
  return sum;
}

void print_figures(const char* what, const SessionStats& stats, double seconds,
                   std::uint64_t most_disk_bytes) {
  std::printf(
      "{\"%s\":true,\"seconds\":%.1f,\"events\":%llu,\"dropped\":%llu,\"rss_bytes\":%llu,"
      "\"file_bytes\":%llu,\"most_disk_bytes\":%llu,\"drain_cpu_s\":%.3f,\"ring_high_water\":%llu,"
      "\"ring_capacity\":%llu,\"error\":\"%s\"}\n",
      what, seconds, static_cast<unsigned long long>(stats.events),
      static_cast<unsigned long long>(stats.dropped),
      static_cast<unsigned long long>(resident_bytes()),
      static_cast<unsigned long long>(stats.bytes_written),
      static_cast<unsigned long long>(most_disk_bytes),
      static_cast<double>(stats.drain_cpu_ns) / 1e9,
      static_cast<unsigned long long>(stats.ring_high_water),
      static_cast<unsigned long long>(stats.ring_capacity), stats.error.c_str());
  std::fflush(stdout);
}

// The events of one chunk are those that produce() made there.
bool is_as_made(gpumemtrace::Reader& reader, std::size_t chunk, std::uint64_t first) {
  const std::uint64_t count = reader.count(chunk, chunk + 1);
  gpumemtrace::EventBuffer buffer;
  const gpumemtrace::EventColumns columns = buffer.columns(count);
  if (reader.read(chunk, chunk + 1, columns) != count) return false;
  std::uint64_t allocator_events = first;
  for (std::uint64_t i = 0; i < count; ++i) {
    if (columns.kind[i] > 2) continue;  // a sample of the host's memory
    const gpumemtrace::Event made = nth_event(0, allocator_events++);
    if (columns.kind[i] != static_cast<std::uint16_t>(made.kind) ||
        columns.address[i] != made.address || columns.size_bytes[i] != made.size) {
      return false;
    }
  }
  return true;
}

// Allocs and frees in the file, and those of which it says that they were left out.
std::uint64_t count_told(gpumemtrace::Reader& reader) {
  std::uint64_t told = 0;
  gpumemtrace::EventBuffer buffer;
  for (std::size_t chunk = 0; chunk < reader.chunks().size(); ++chunk) {
    const std::uint64_t count = reader.count(chunk, chunk + 1);
    const gpumemtrace::EventColumns columns = buffer.columns(count);
    if (reader.read(chunk, chunk + 1, columns) != count) return 0;
    for (std::uint64_t i = 0; i < count; ++i) {
      if (columns.kind[i] <= 2) ++told;
      if (columns.kind[i] == static_cast<std::uint16_t>(gpumemtrace::Kind::kAged)) {
        told += columns.address[i] + columns.stream[i];
      }
    }
  }
  return told;
}

void print_both_ends(const std::string& path, std::uint64_t made) {
  const std::uint64_t begin = monotonic_ns();
  gpumemtrace::Reader reader(std::make_unique<gpumemtrace::FileSource>(path));
  const double open_s = static_cast<double>(monotonic_ns() - begin) / 1e9;
  const std::size_t chunks = reader.chunks().size();
  const std::size_t last = chunks - 1;
  // Of the last chunk only the end is known: samples among the events before it shift the numbers.
  gpumemtrace::EventBuffer buffer;
  const std::uint64_t count = reader.count(last, last + 1);
  const gpumemtrace::EventColumns columns = buffer.columns(count);
  std::uint64_t in_last = 0;
  if (reader.read(last, last + 1, columns) == count) {
    for (std::uint64_t i = 0; i < count; ++i) in_last += columns.kind[i] <= 2 ? 1 : 0;
  }
  std::printf(
      "{\"read\":true,\"open_s\":%.3f,\"chunks\":%zu,\"events\":%llu,\"closed\":%s,"
      "\"made\":%llu,\"told\":%llu,\"problems\":%zu,\"first_chunk_as_made\":%s,\"last_chunk_as_"
      "made\":%s}\n",
      open_s, chunks, static_cast<unsigned long long>(reader.count(0, chunks)),
      reader.footer() ? "true" : "false", static_cast<unsigned long long>(made),
      static_cast<unsigned long long>(count_told(reader)), reader.problems().size(),
      is_as_made(reader, 0, 0) ? "true" : "false",
      in_last != 0 && is_as_made(reader, last, made - in_last) ? "true" : "false");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) {
    std::fprintf(stderr,
                 "usage: soak PATH EVENTS RATE RING_BYTES SECONDS_BETWEEN_LOOKS MAX_DISK_BYTES\n");
    return 2;
  }
  const double events = std::atof(argv[2]);
  const double per_second = std::atof(argv[3]);
  SessionOptions options;
  options.path = argv[1];
  options.ring_bytes = std::strtoull(argv[4], nullptr, 10);
  options.max_disk_bytes = std::strtoull(argv[6], nullptr, 10);
  start_session(options);

  std::atomic<std::uint64_t> made{0};
  std::atomic<std::uint64_t> refused{0};
  std::atomic<bool> is_done{false};
  const std::uint64_t begin = monotonic_ns();
  const auto seconds = [&] { return static_cast<double>(monotonic_ns() - begin) / 1e9; };
  std::thread producer([&] {
    produce(0, per_second, events / per_second, made, refused);
    is_done = true;
  });
  double next = 0;
  std::uint64_t most_disk_bytes = 0;
  while (!is_done) {
    most_disk_bytes = std::max(most_disk_bytes, disk_bytes(options.path));
    if (seconds() >= next) {
      print_figures("look", session_stats(), seconds(), most_disk_bytes);
      next += std::atof(argv[5]);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  producer.join();
  const double took = seconds();
  print_figures("end", stop_session("{\"reason\":\"closed\"}"), took, most_disk_bytes);
  print_both_ends(argv[1], made);
  return 0;
}
