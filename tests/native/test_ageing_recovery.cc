// A process killed at the instants at which a smaller file takes the place of its trace: whichever
// of the two is found, the recovery puts behind it what it lacks, and nothing twice.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "capture/leftovers.h"
#include "capture/recovery.h"
#include "capture/session.h"
#include "folder.h"
#include "killed.h"
#include "long_run.h"

namespace {

enum class Instant { kNever, kBeforeLink, kAfterLink, kBeforeRename, kAfterRename };

// In the child that is to be killed.
Instant g_instant = Instant::kNever;
int g_replacements_before = 0;

void die_at(Instant instant) {
  if (instant == g_instant && g_replacements_before == 0) raise(SIGKILL);
}

}  // namespace

// In place of the C library's, for this program.
extern "C" int linkat(int old_folder, const char* old_path, int new_folder, const char* new_path,
                      int flags) noexcept {
  const bool is_ours = std::string(new_path).find(".ageing") != std::string::npos;
  if (is_ours) die_at(Instant::kBeforeLink);
  const long result = syscall(SYS_linkat, old_folder, old_path, new_folder, new_path, flags);
  if (is_ours) die_at(Instant::kAfterLink);
  return static_cast<int>(result);
}

extern "C" int rename(const char* old_path, const char* new_path) noexcept {
  die_at(Instant::kBeforeRename);
  const long result = syscall(SYS_renameat, AT_FDCWD, old_path, AT_FDCWD, new_path);
  die_at(Instant::kAfterRename);
  --g_replacements_before;
  return static_cast<int>(result);
}

namespace gpumemtrace::capture {
namespace {

constexpr std::uint64_t kPairs = 200;

// Counts what a process that does not live long has recorded.
class SharedCount {
 public:
  SharedCount()
      : place_(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    REQUIRE(place_ != MAP_FAILED);
  }
  ~SharedCount() { ::munmap(place_, 4096); }
  SharedCount(const SharedCount&) = delete;
  SharedCount& operator=(const SharedCount&) = delete;
  std::atomic<std::uint64_t>& count() { return *static_cast<std::atomic<std::uint64_t>*>(place_); }

 private:
  void* place_;
};

[[noreturn]] void record_long_run(const std::string& path, std::atomic<std::uint64_t>& count) {
  SessionOptions options;
  options.path = path;
  options.shared_memory_folder = shared_folder();
  options.drain_interval_ms = 1;
  options.max_disk_bytes = 1 << 20;
  options.ring_bytes = 1 << 20;
  options.block_timeout_ms = 10'000;
  options.flush_interval_ms = 5;
  options.device_sample_interval_ms = 0;
  start_session(options);
  LongRun run(kPairs);
  while (true) {
    for (Event event : run.next()) {
      if (!push(active_ring(), event)) _exit(1);
      ++count;
    }
  }
}

pid_t start_child(const std::string& path, std::atomic<std::uint64_t>& count, Instant instant,
                  int replacements_before) {
  const pid_t child = fork();
  if (child != 0) return child;
  g_instant = instant;
  g_replacements_before = replacements_before;
  record_long_run(path, count);
}

void check_all_is_there(const std::string& path, std::uint64_t pushed) {
  const Recovery done = recover_own(path, segment_of(path));
  REQUIRE(done.outcome == RecoveryOutcome::kInFile);
  const ReadBack trace = read_back(path);
  CHECK(trace.problems == 0);
  CHECK(trace.footer.find(R"("reason":"recovered")") != std::string::npos);
  const Told told = told_by(trace.events);
  LongRun run(kPairs);
  std::uint64_t allocs = 0;
  std::uint64_t frees = 0;
  std::uint64_t left = pushed;
  Event next{};
  while (left != 0) {
    for (const Event& event : run.next()) {
      next = event;
      if (left == 0) break;
      allocs += event.kind == Kind::kAlloc ? 1 : 0;
      frees += event.kind == Kind::kFree ? 1 : 0;
      --left;
    }
  }
  // One more may have been pushed and not counted yet.
  CHECK(told.allocs >= allocs);
  CHECK(told.frees >= frees);
  CHECK(told.allocs + told.frees <= allocs + frees + 1);
  // The last ones as they were pushed.
  LongRun again(kPairs);
  std::vector<Event> all;
  while (all.size() < pushed) {
    const std::vector<Event> step = again.next();
    all.insert(all.end(), step.begin(), step.end());
  }
  const std::size_t tail = trace.events.size() - 1000;
  const std::uint64_t read = allocs + frees == told.allocs + told.frees ? pushed : pushed + 1;
  for (std::size_t i = 0; i < 1000; ++i) {
    const Event& got = trace.events[tail + i];
    const Event& expected = all[read - 1000 + i];
    REQUIRE(got.kind == expected.kind);
    REQUIRE(got.address == expected.address);
    REQUIRE(got.size == expected.size);
  }
}

}  // namespace

TEST_CASE("killed right before and after each act by which a smaller file takes the place") {
  for (const Instant instant :
       {Instant::kBeforeLink, Instant::kAfterLink, Instant::kBeforeRename, Instant::kAfterRename}) {
    for (const int replacements_before : {0, 2}) {
      CAPTURE(static_cast<int>(instant));
      CAPTURE(replacements_before);
      const Folder folder;
      const std::string path = folder / "a.gmt";
      SharedCount shared;
      const pid_t child = start_child(path, shared.count(), instant, replacements_before);
      int status = 0;
      REQUIRE(waitpid(child, &status, 0) == child);
      REQUIRE(WIFSIGNALED(status));
      REQUIRE(WTERMSIG(status) == SIGKILL);
      const bool is_replaced = replacements_before != 0 || instant == Instant::kAfterRename;
      CHECK((told_by(read_back(path).events).left_out_allocs != 0) == is_replaced);
      check_all_is_there(path, shared.count());
      CHECK(folder.names() == std::vector<std::string>{"a.gmt"});
    }
  }
}

TEST_CASE("killed at any other moment, in the middle of making a smaller file or not") {
  int aged = 0;
  for (std::uint64_t repeat = 0; repeat < 20; ++repeat) {
    CAPTURE(repeat);
    const Folder folder;
    const std::string path = folder / "a.gmt";
    SharedCount shared;
    const pid_t child = start_child(path, shared.count(), Instant::kNever, 0);
    const std::uint64_t enough = 100'000 + repeat * 29'989;
    while (shared.count() < enough && waitpid(child, nullptr, WNOHANG) == 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    REQUIRE(shared.count() >= enough);
    check_all_is_there(path, shared.count());
    CHECK(folder.names() == std::vector<std::string>{"a.gmt"});
    aged += told_by(read_back(path).events).left_out_allocs != 0 ? 1 : 0;
  }
  CHECK(aged > 10);
}

TEST_CASE("what nobody read is completed by the next session, in the file that it is by now") {
  const Folder folder;
  const std::string path = folder / "a.gmt";
  SharedCount shared;
  waitpid(start_child(path, shared.count(), Instant::kAfterRename, 1), nullptr, 0);
  collect_leftovers(shared_folder(), monotonic_ns());
  CHECK(read_back(path).footer.find("recovered") != std::string::npos);
}

TEST_CASE("a copy from before the file was replaced is no place for what came after") {
  const Folder folder;
  const std::string path = folder / "a.gmt";
  const std::string early = folder / "early.gmt";
  const std::string late = folder / "late.gmt";
  SharedCount shared;
  const pid_t child = start_child(path, shared.count(), Instant::kAfterRename, 2);
  while (!fs::exists(path) || fs::file_size(path) < 200'000) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  fs::copy_file(path, early);
  waitpid(child, nullptr, 0);
  fs::copy_file(path, late);
  const std::string segment = segment_of(path);
  const Recovery refused = recover_own(early, segment);
  CHECK(refused.outcome == RecoveryOutcome::kLeftAlone);
  CHECK(refused.why == "this is a copy; the file that was recorded to is " + path +
                           ", which a smaller file has replaced since");
  const Recovery in_memory = recover_own(late, segment);
  CHECK(in_memory.outcome == RecoveryOutcome::kInMemory);
  const Told told = told_by(read_recovered(late, in_memory).events);
  check_all_is_there(path, shared.count());
  CHECK(told.allocs == told_by(read_back(path).events).allocs);
}

}  // namespace gpumemtrace::capture
