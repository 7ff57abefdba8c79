// What becomes of the memory that a killed process leaves behind.
#include <doctest/doctest.h>

#include <string>
#include <thread>
#include <vector>

#include "capture/leftovers.h"
#include "capture/recovery.h"
#include "capture/session.h"
#include "killed.h"

namespace gpumemtrace::capture {

TEST_CASE("what a killed process had in its ring is put behind the file, which is closed") {
  const TemporaryPath path;
  in_killed_child([&] {
    start_session(undrained(path));
    define_string("before");
    for (std::uint64_t i = 0; i < 700; ++i) record(i);
    define_phase(0, "the \"last\" phase");
  });
  CHECK(read_back(path.name()).footer.empty());
  const std::string segment = segment_of(path.name());
  REQUIRE(is_segment_name(segment));
  CHECK(fs::exists(shared(segment)));
  const Recovery done = recover_own(path.name(), segment);
  CHECK(done.outcome == RecoveryOutcome::kInFile);
  CHECK(done.events == 700);
  CHECK_FALSE(fs::exists(shared(segment)));
  const ReadBack trace = read_back(path.name());
  check_addresses(trace, 700);
  CHECK(trace.problems == 0);
  CHECK(trace.names.find("before") != std::string::npos);
  CHECK(trace.names.find(R"(the \"last\" phase)") != std::string::npos);
  CHECK(trace.names.find(R"("threads":[[1,)") != std::string::npos);
  CHECK(trace.footer == R"({"reason":"recovered","recovered":{"events":700,"names_left_out":0}})");
  CHECK(trace.events.back().time < 60'000'000'000);
  CHECK(recover_own(path.name(), segment).outcome == RecoveryOutcome::kNothing);
}

TEST_CASE("texts come as fast as they do: ten thousand are kept, and beyond them each is counted") {
  const TemporaryPath path;
  constexpr std::uint32_t kRoom = sizeof(NamesPage::entries) / (sizeof(NameEntry) + 10);
  static_assert(kRoom > 10'000);
  in_killed_child([&] {
    start_session(undrained(path));
    for (std::uint32_t i = 0; i < kRoom + 100; ++i) {
      define_string("text " + std::to_string(10'000 + i));
    }
    record(1);
  });
  recover_own(path.name(), segment_of(path.name()));
  const ReadBack trace = read_back(path.name());
  CHECK(trace.names.find("text 10000\"") != std::string::npos);
  CHECK(trace.names.find("text 20000\"") != std::string::npos);
  CHECK(trace.names.find("text " + std::to_string(10'000 + kRoom + 99)) == std::string::npos);
  // The thread has a name, too, so one text more finds no room, or two.
  const bool is_counted = trace.footer.find(R"("names_left_out":100)") != std::string::npos ||
                          trace.footer.find(R"("names_left_out":101)") != std::string::npos ||
                          trace.footer.find(R"("names_left_out":102)") != std::string::npos;
  CHECK_MESSAGE(is_counted, trace.footer);
}

TEST_CASE(
    "a process killed while it records and drains: what it had pushed is read, no more, no less") {
  for (int repeat = 0; repeat < 30; ++repeat) {
    const TemporaryPath path;
    int reached[2];
    REQUIRE(pipe(reached) == 0);
    const pid_t child = fork();
    if (child == 0) {
      SessionOptions options = to(path);
      options.flush_interval_ms = 3;
      options.ring_bytes = 1 << 23;
      start_session(options);
      for (std::uint64_t i = 0; record(i); ++i) {
        if (write(reached[1], &i, sizeof i) != sizeof i) _exit(1);
      }
      _exit(2);
    }
    close(reached[1]);
    std::uint64_t pushed = 0;
    const std::uint64_t enough = static_cast<std::uint64_t>(repeat) * 997;
    while (read(reached[0], &pushed, sizeof pushed) == sizeof pushed && pushed < enough) {
    }
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    while (read(reached[0], &pushed, sizeof pushed) == sizeof pushed) {
    }
    close(reached[0]);
    REQUIRE(recover_own(path.name(), segment_of(path.name())).outcome == RecoveryOutcome::kInFile);
    const ReadBack trace = read_back(path.name());
    CHECK(trace.problems == 0);
    // One more may have been pushed and not yet been told of.
    const std::uint64_t read = trace.events.size();
    CHECK(read >= pushed + 1);
    CHECK(read <= pushed + 2);
    check_addresses(trace, read);
  }
}

TEST_CASE("losses that were not told yet are told") {
  const TemporaryPath path;
  in_killed_child([&] {
    start_session(undrained(path));
    for (std::uint64_t i = 0; i < 2000; ++i) record(i);
  });
  REQUIRE(recover_own(path.name(), segment_of(path.name())).outcome == RecoveryOutcome::kInFile);
  const ReadBack trace = read_back(path.name());
  // The drain's first pass may have come while they were pushed: then it told a part.
  std::uint64_t read = 0;
  std::uint64_t lost = 0;
  std::uint64_t lost_bytes = 0;  // of one that is just being lost the gap before may tell them
  std::uint64_t next = 0;
  for (const Event& event : trace.events) {
    if (event.kind == Kind::kGap) {
      lost += event.address;
      lost_bytes += event.size;
    } else {
      ++read;
      CHECK(event.address >= next);
      next = event.address + 1;
    }
  }
  CHECK(trace.events.back().kind == Kind::kGap);
  CHECK(lost > 0);
  CHECK(lost_bytes == lost * 512);
  CHECK(read + lost == 2000);
}

TEST_CASE("a writer that lives is left alone, by others and by itself") {
  const TemporaryPath path;
  start_session(to(path));
  REQUIRE(record(0));
  const std::string segment = segment_of(path.name());
  const auto outcome_for_child = [&] {
    const pid_t child = fork();
    if (child == 0) _exit(static_cast<int>(recover_own(path.name(), segment).outcome));
    int status = 0;
    waitpid(child, &status, 0);
    return static_cast<RecoveryOutcome>(WEXITSTATUS(status));
  };
  CHECK(outcome_for_child() == RecoveryOutcome::kWriterLives);
  CHECK(recover_own(path.name(), segment).outcome == RecoveryOutcome::kWriterLives);
  CHECK(outcome_for_child() == RecoveryOutcome::kWriterLives);  // we have not given up the lock
  CHECK(record(1));
  stop_session("{}");
  CHECK(read_back(path.name()).events.size() == 2);
  CHECK_FALSE(fs::exists(shared(segment)));
}

TEST_CASE("a program that exec'ed another has ended; its lock is gone, its number lives on") {
  const TemporaryPath path;
  int ready[2];
  REQUIRE(pipe(ready) == 0);
  const pid_t child = fork();
  if (child == 0) {
    start_session(undrained(path));
    for (std::uint64_t i = 0; i < 10; ++i) record(i);
    dup2(ready[1], 1);
    execl("/bin/sh", "sh", "-c", "echo x; exec sleep 60", static_cast<char*>(nullptr));
    _exit(1);
  }
  char byte = 0;
  REQUIRE(read(ready[0], &byte, 1) == 1);
  CHECK(recover_own(path.name(), segment_of(path.name())).outcome == RecoveryOutcome::kInFile);
  check_addresses(read_back(path.name()), 10);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST_CASE("of any number of readers at once one recovers, and all find the whole trace") {
  const TemporaryPath path;
  in_killed_child([&] {
    start_session(undrained(path));
    for (std::uint64_t i = 0; i < 700; ++i) record(i);
  });
  const std::string segment = segment_of(path.name());
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      recover_own(path.name(), segment);
      _exit(read_back(path.name()).events.size() == 700 ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    waitpid(child, &status, 0);
    CHECK(status == 0);
  }
  check_addresses(read_back(path.name()), 700);
}

TEST_CASE("a file cut, or damaged, since: the rest is read behind what is left") {
  const TemporaryPath path;
  in_killed_child([&] {
    SessionOptions options = to(path);
    options.flush_interval_ms = 0;
    start_session(options);
    for (std::uint64_t i = 0; i < 300; ++i) {
      record(i);
      if (i % 100 == 99) std::this_thread::sleep_for(std::chrono::milliseconds(30));
    }
  });
  // In a chunk that the segment has no more.
  fs::resize_file(path.name(),
                  Reader(std::make_unique<FileSource>(path.name())).chunks().at(1).offset + 10);
  const Recovery done = recover_own(path.name(), segment_of(path.name()));
  CHECK(done.outcome == RecoveryOutcome::kInFile);
  const ReadBack trace = read_back(path.name());
  CHECK(trace.events.size() < 300);
  CHECK(trace.footer.empty());
}

TEST_CASE("what nobody read is completed by the next session's look around, on its own") {
  const TemporaryPath read_never;
  const TemporaryPath moved;
  const TemporaryPath moved_to;
  for (const TemporaryPath* path : {&read_never, &moved}) {
    in_killed_child([&] {
      start_session(undrained(*path));
      for (std::uint64_t i = 0; i < 100; ++i) record(i);
    });
  }
  const std::string moved_segment = segment_of(moved.name());
  fs::rename(moved.name(), moved_to.name());
  const TemporaryPath alive;
  start_session(to(alive));
  REQUIRE(record(0));
  const std::string own_segment = segment_of(alive.name());
  constexpr std::uint64_t kHourNs = 3'600ULL * 1'000'000'000;
  collect_leftovers(shared_folder(), monotonic_ns());
  check_addresses(read_back(read_never.name()), 100);
  CHECK_FALSE(read_back(read_never.name()).footer.empty());
  collect_leftovers(shared_folder(), monotonic_ns() + 23 * kHourNs);
  CHECK(fs::exists(shared(moved_segment)));
  collect_leftovers(shared_folder(), monotonic_ns() + 25 * kHourNs);
  CHECK_FALSE(fs::exists(shared(moved_segment)));
  CHECK(read_back(moved_to.name()).events.empty());
  CHECK(fs::exists(shared(own_segment)));
  CHECK(record(1));
  stop_session("{}");
  CHECK(read_back(alive.name()).events.size() == 2);
}

}  // namespace gpumemtrace::capture
