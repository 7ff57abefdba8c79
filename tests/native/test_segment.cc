// Segments that are not ours, not whole, or hold anything at all; and where none can be had.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>

#include "capture/name_log.h"
#include "capture/recovery.h"
#include "capture/segment_reader.h"
#include "capture/session.h"
#include "killed.h"

namespace gpumemtrace::capture {

TEST_CASE("what is not ours, or not what it should be, is left alone") {
  const TemporaryPath path;
  const TemporaryPath other_path;
  in_killed_child([&] {
    start_session(undrained(path));
    record(0);
  });
  in_killed_child([&] { start_session(undrained(other_path)); });
  const std::string segment = segment_of(path.name());
  const auto left_alone = [&](const std::string& name, const std::string& why) {
    const Recovery done = recover_own(path.name(), name);
    CHECK(done.outcome == RecoveryOutcome::kLeftAlone);
    CHECK(done.why == why);
  };
  for (const char* name : {"", "passwd", "../../etc/passwd", "gpumemtrace-0123456789abcdef",
                           "gpumemtrace-0123456789ABCDEF0123456789ABCDEF"}) {
    left_alone(name, "its name is none that gpumemtrace gives");
  }
  const OwnSegment own;
  CHECK(symlink(shared(segment).c_str(), own.path().c_str()) == 0);
  left_alone(own.name(), "Too many levels of symbolic links");
  unlink(own.path().c_str());
  CHECK(mkfifo(own.path().c_str(), 0600) == 0);
  left_alone(own.name(), "it is not a plain file");
  unlink(own.path().c_str());
  CHECK(link(shared(segment).c_str(), own.path().c_str()) == 0);
  left_alone(own.name(), "it is not a plain file");
  unlink(own.path().c_str());
  std::ofstream(own.path()) << "short";
  CHECK(chmod(own.path().c_str(), 0644) == 0);
  left_alone(own.name(), "others may write to it");
  CHECK(chmod(own.path().c_str(), 0600) == 0);
  left_alone(own.name(), "it is too short");
  CHECK(truncate(own.path().c_str(), 3 << 20) == 0);
  left_alone(own.name(), "it does not begin like one of ours");
  if (geteuid() == 0) {
    CHECK(chown(own.path().c_str(), 12345, 12345) == 0);
    left_alone(own.name(), "it belongs to user 12345, who has to be the first to open the trace");
  }
  left_alone(segment_of(other_path.name()), "it belongs to another trace");
  CHECK(fs::exists(shared(segment_of(other_path.name()))));
  CHECK(fs::exists(shared(segment)));
  CHECK(recover_own(path.name(), segment).outcome == RecoveryOutcome::kInFile);
  CHECK(recover_own(other_path.name(), segment_of(other_path.name())).outcome ==
        RecoveryOutcome::kInFile);
}

TEST_CASE("any bytes at all in a segment give an error or events, nothing else") {
  const TemporaryPath path;
  in_killed_child([&] {
    SessionOptions options = undrained(path);
    options.ring_bytes = 4096;
    start_session(options);
    define_string("a text");
    for (std::uint64_t i = 0; i < 50; ++i) record(i);
  });
  const std::string name = segment_of(path.name());
  const int file = open(shared(name).c_str(), O_RDWR | O_CLOEXEC);
  REQUIRE(file >= 0);
  const auto size = static_cast<std::uint64_t>(fs::file_size(shared(name)));
  std::mt19937_64 random(1);
  const std::pair<std::uint64_t, std::uint64_t> parts[] = {
      {0, sizeof(SegmentHeader) - sizeof(SegmentHeader::file_path)},
      {kProgressOffset, sizeof(ProgressLog)},
      {kNamesOffset, 64},
      {kNamesOffset + kNamesPageBytes, 64},
      {kRingOffset, 64 * sizeof(Slot) + sizeof(RingExtras)},
  };
  int refused = 0;
  int read = 0;
  for (int repeat = 0; repeat < 4000; ++repeat) {
    const auto& [begin, length] = parts[random() % std::size(parts)];
    const std::uint64_t offset = begin + random() % length / 4 * 4;
    std::uint32_t before = 0;
    REQUIRE(pread(file, &before, sizeof before, static_cast<off_t>(offset)) == sizeof before);
    const std::uint32_t odd[] = {0,
                                 1,
                                 0x7fffffff,
                                 0x80000000,
                                 0xffffffff,
                                 before ^ (1U << random() % 32),
                                 static_cast<std::uint32_t>(random())};
    const std::uint32_t after = odd[random() % std::size(odd)];
    pwrite(file, &after, sizeof after, static_cast<off_t>(offset));
    try {
      const SegmentHeader header = read_segment_header(file, size);
      const LeftBehind left = read_segment(file, header, read_progress(file));
      CHECK(left.events.size() <= kStageEvents + 64 + 2);
      ++read;
    } catch (const SegmentError&) {
      ++refused;
    }
    pwrite(file, &before, sizeof before, static_cast<off_t>(offset));
  }
  CHECK(refused > 100);
  CHECK(read > 1000);
  for (const std::uint64_t cut : {std::uint64_t{0}, std::uint64_t{100}, std::uint64_t{kStageOffset},
                                  std::uint64_t{kRingOffset}, size - 4096}) {
    CHECK(ftruncate(file, static_cast<off_t>(cut)) == 0);
    CHECK_THROWS_AS(read_segment_header(file, cut), SegmentError);
  }
  close(file);
  unlink(shared(name).c_str());
}

TEST_CASE("without shared memory it records all the same, and says why in the run record") {
  const TemporaryPath path;
  SessionOptions options = to(path);
  options.shared_memory_folder = "/nowhere";
  start_session(options);
  for (std::uint64_t i = 0; i < 100; ++i) REQUIRE(record(i));
  stop_session("{}");
  const ReadBack trace = read_back(path.name());
  check_addresses(trace, 100);
  CHECK(
      trace.metadata.find(R"("recovery":{"unavailable":"/nowhere: No such file or directory"})") !=
      std::string::npos);
  CHECK(Segment({.ring_capacity = 64, .folder = "/tmp"}).why_private() ==
        "/tmp: it is not a file system in memory");
}

TEST_CASE("we take a quarter of what is free in shared memory, and no more") {
  constexpr std::uint64_t kMiB = 1 << 20;
  CHECK(why_too_small(64 * kMiB, 64 * kMiB, 9 * kMiB).empty());
  CHECK(why_too_small(64 * kMiB, 64 * kMiB, 16 * kMiB).empty());
  CHECK(why_too_small(64 * kMiB, 35 * kMiB, 9 * kMiB) ==
        "it has 35 MiB free; a quarter of that is less than the 9 MiB needed");
  CHECK(why_too_small(0, 0, 9 * kMiB).empty());  // a tmpfs without a limit
}

TEST_CASE("names beyond the room that there is are counted") {
  auto pages = std::make_unique<NamesPage[]>(2);
  NameLog log(pages.get());
  const std::string text(1000, 'x');
  constexpr std::uint32_t kRoom = sizeof(NamesPage::entries) / (sizeof(NameEntry) + 1000);
  for (std::uint32_t i = 0; i < kRoom + 12; ++i) log.add_string(i, text);
  CHECK(pages[0].left_out == 12);
  log.turn();
  log.add_string(40, text);
  log.turn();
  CHECK(pages[0].left_out == 0);
  CHECK(pages[0].used_bytes == 0);
  CHECK(pages[1].used_bytes == sizeof(NameEntry) + 1000);
}

}  // namespace gpumemtrace::capture
