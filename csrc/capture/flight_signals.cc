#include "capture/flight_signals.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>

namespace gpumemtrace::capture {
namespace {

enum class Meaning { kEnd, kCrash, kDump };

struct Watched {
  int number;
  const char* name;
  Meaning meaning;
};
constexpr std::array<Watched, 9> kWatched{{
    {SIGTERM, "SIGTERM", Meaning::kEnd},
    {SIGHUP, "SIGHUP", Meaning::kEnd},
    {SIGXCPU, "SIGXCPU", Meaning::kEnd},
    {SIGABRT, "SIGABRT", Meaning::kCrash},
    {SIGSEGV, "SIGSEGV", Meaning::kCrash},
    {SIGBUS, "SIGBUS", Meaning::kCrash},
    {SIGFPE, "SIGFPE", Meaning::kCrash},
    {SIGILL, "SIGILL", Meaning::kCrash},
    {SIGUSR2, "SIGUSR2", Meaning::kDump},
}};
// A crash may have left the heap locked, and the drain thread with it: then it ends without a file.
constexpr int kCrashPatienceMs = 5'000;

// All lock-free, so that a handler may use them. relaxed but for g_written, which is release
// (end_by_signal) -> acquire (on_crash); nothing else hangs on them.
constinit std::atomic<int> g_ending{0};
constinit std::atomic<bool> g_dump_wanted{false};
constinit std::atomic<bool> g_written{false};
constinit std::atomic<pid_t> g_owner{0};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<pid_t>::is_always_lock_free);

bool is_owner() noexcept { return g_owner.load(std::memory_order_relaxed) == getpid(); }

// The action is the default one again (SA_RESETHAND), and the signal blocked until the handler returns.
void on_end(int number) {
  if (is_owner()) {
    g_ending.store(number, std::memory_order_relaxed);
  } else {
    raise(number);  // a child made without pthread_atfork's handlers
  }
}

void on_crash(int number) {
  const int callers_errno = errno;
  if (is_owner()) {
    g_ending.store(number, std::memory_order_relaxed);
    for (int ms = 0; ms < kCrashPatienceMs && !g_written.load(std::memory_order_acquire); ++ms) {
      const timespec moment{0, 1'000'000};
      nanosleep(&moment, nullptr);
    }
  }
  errno = callers_errno;
  raise(number);
}

void on_dump(int number) {
  if (is_owner()) {
    g_dump_wanted.store(true, std::memory_order_relaxed);
  } else {
    signal(number, SIG_DFL);
    raise(number);
  }
}

void (*handler_of(Meaning meaning) noexcept)(int) {
  switch (meaning) {
    case Meaning::kEnd:
      return on_end;
    case Meaning::kCrash:
      return on_crash;
    case Meaning::kDump:
      break;
  }
  return on_dump;
}

}  // namespace

void take_signals() noexcept {
  g_ending.store(0, std::memory_order_relaxed);
  g_dump_wanted.store(false, std::memory_order_relaxed);
  g_written.store(false, std::memory_order_relaxed);
  g_owner.store(getpid(), std::memory_order_relaxed);
  for (const Watched& watched : kWatched) {
    struct sigaction action {};
    if (sigaction(watched.number, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) continue;
    action = {};
    action.sa_handler = handler_of(watched.meaning);
    action.sa_flags = SA_RESTART | SA_ONSTACK;
    if (watched.meaning != Meaning::kDump) action.sa_flags |= static_cast<int>(SA_RESETHAND);
    sigaction(watched.number, &action, nullptr);
  }
}

void give_back_signals() noexcept {
  for (const Watched& watched : kWatched) {
    struct sigaction action {};
    if (sigaction(watched.number, nullptr, &action) == 0 &&
        action.sa_handler == handler_of(watched.meaning)) {
      signal(watched.number, SIG_DFL);
    }
  }
}

void forget_signals_after_fork() noexcept {
  if (g_owner.exchange(0, std::memory_order_relaxed) != 0) give_back_signals();
}

int ending_signal() noexcept { return g_ending.load(std::memory_order_relaxed); }

void end_by_signal(int number) noexcept {
  for (const Watched& watched : kWatched) {
    if (watched.number == number && watched.meaning == Meaning::kEnd) kill(getpid(), number);
  }
  g_ending.store(0, std::memory_order_relaxed);
  g_written.store(true, std::memory_order_release);
}

bool take_dump_signal() noexcept {
  return g_dump_wanted.exchange(false, std::memory_order_relaxed);
}

const char* name_of_signal(int number) noexcept {
  for (const Watched& watched : kWatched) {
    if (watched.number == number) return watched.name;
  }
  return "a signal";
}

}  // namespace gpumemtrace::capture
