// Any bytes as what a killed process left in shared memory: once as they are, once with the numbers
// right that the reader turns away at the door. What must hold: an answer, and a trace that still
// begins with the events it had.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "capture/recovery.h"
#include "capture/segment_layout.h"
#include "read_back.h"
#include "trace_bytes.h"

namespace {

using namespace gpumemtrace;
using namespace gpumemtrace::capture;

constexpr std::uint64_t kTraceId = 77;
constexpr std::size_t kEventsInFile = 25;
constexpr std::uint64_t kRingCapacity = 8;
constexpr std::size_t kSegmentBytes = segment_bytes(kRingCapacity);

struct Region {
  std::size_t offset;
  std::size_t size;
};
// What the input stands for, one behind the other; all else is zero.
constexpr Region kRegions[] = {
    {0, offsetof(SegmentHeader, file_path)},
    {kProgressOffset, sizeof(ProgressLog)},
    {kRingOffset, kRingCapacity * sizeof(Slot)},
    {kStageOffset, 4 * sizeof(Event)},
    {kNamesOffset, 256},
    {kNamesOffset + kNamesPageBytes, 64},
    {kRingOffset + kRingCapacity * sizeof(Slot), 64},
};

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "fuzz_segment: %s\n", what);
  std::abort();
}

Bytes make_trace() {
  std::vector<Event> events(kEventsInFile);
  for (std::size_t i = 0; i < events.size(); ++i) {
    events[i].kind = Kind::kAlloc;
    events[i].time = 1000 * i;
    events[i].address = 512 * i;
    events[i].size = 512;
  }
  return small_trace(events, false, kTraceId, Codec::kHistory);
}

// The folder, gone with the process.
class Place {
 public:
  Place() {
    char name[] = "/dev/shm/fuzz-segment-XXXXXX";
    if (::mkdtemp(name) == nullptr) fail("no folder");
    folder = name;
    trace = folder + "/t.gmt";
    segment = folder + '/' + segment_name;
  }
  ~Place() { std::filesystem::remove_all(folder); }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  const std::string segment_name = "gpumemtrace-" + std::string(32, '0');
  std::string folder;
  std::string trace;
  std::string segment;
};

void write_at(int descriptor, std::size_t offset, const void* data, std::size_t size) {
  if (::pwrite(descriptor, data, size, static_cast<off_t>(offset)) != static_cast<ssize_t>(size)) {
    fail("could not write");
  }
}

void write_segment(const Place& place, std::span<const std::uint8_t> input, bool repaired) {
  const int file = ::open(place.segment.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0 || ::ftruncate(file, kSegmentBytes) != 0) fail("no segment");
  for (const Region& region : kRegions) {
    const std::size_t size = std::min(region.size, input.size());
    write_at(file, region.offset, input.data(), size);
    input = input.subspan(size);
  }
  if (repaired) {
    struct stat status {};
    if (::stat(place.trace.c_str(), &status) != 0) fail("no trace");
    SegmentHeader header{};
    if (::pread(file, &header, sizeof header, 0) != sizeof header) fail("could not read");
    std::memcpy(header.magic, kSegmentMagic, sizeof kSegmentMagic);
    header.version = kSegmentVersion;
    header.total_bytes = kSegmentBytes;
    header.ring_capacity = kRingCapacity;
    header.trace_id = kTraceId;
    header.time_resolution_ns = 1 + header.time_resolution_ns % 1000;
    write_at(file, 0, &header, sizeof header);
    alignas(ProgressLog) unsigned char log[sizeof(ProgressLog)];
    if (::pread(file, log, sizeof log, kProgressOffset) != sizeof log) fail("could not read");
    log[0] |= 1;  // something was committed
    constexpr std::size_t kRecords = sizeof(std::uint64_t);
    for (std::size_t record = 0; record < 2; ++record) {
      Progress progress{};
      unsigned char* const place_of = log + kRecords + record * sizeof progress;
      std::memcpy(&progress, place_of, sizeof progress);
      progress.staged %= 5;
      progress.files[0].device = status.st_dev;
      progress.files[0].inode = status.st_ino;
      progress.files[0].first_sequence %= 2 * kEventsInFile;
      progress.files[1] = {};
      progress.ring_position %= 2 * kRingCapacity;
      std::memcpy(place_of, &progress, sizeof progress);
    }
    write_at(file, kProgressOffset, log, sizeof log);
  }
  ::close(file);
}

Bytes bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void recover_from(const Place& place, std::span<const std::uint8_t> input, bool repaired) {
  static const Bytes before = make_trace();
  {
    std::ofstream file(place.trace, std::ios::binary | std::ios::trunc);
    file.write(reinterpret_cast<const char*>(before.data()),
               static_cast<std::streamsize>(before.size()));
  }
  write_segment(place, input, repaired);
  const Recovery done = recover(place.trace, place.segment_name, place.folder);
  if (repaired && done.outcome != RecoveryOutcome::kInFile) fail("it was not recovered");
  Bytes after = bytes_of(place.trace);
  if (done.outcome == RecoveryOutcome::kInMemory) {
    after.resize(static_cast<std::size_t>(done.offset));
    after.insert(after.end(), done.tail.begin(), done.tail.end());
  }
  const ReadBack trace = read_back(after);
  if (trace.events.size() != kEventsInFile + done.events) fail("the events do not add up");
  for (std::size_t i = 0; i < kEventsInFile; ++i) {
    if (trace.events[i].address != 512 * i) fail("an event of the file has changed");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size_bytes) {
  static const Place place;
  recover_from(place, {data, size_bytes}, false);
  recover_from(place, {data, size_bytes}, true);
  return 0;
}
