#include "fork.h"

#include <pthread.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace simgpu {
namespace {

constexpr int kMostMutexes = 64;
std::mutex* held[kMostMutexes];
std::atomic<int> held_count{0};
std::atomic<bool> used{false};
std::atomic<bool> bad_fork{false};
int locked_count = 0;  // between prepare and parent/child: written and read by the forking thread

void lock_all() {
  locked_count = held_count.load(std::memory_order_acquire);  // pairs with hold_across_fork
  for (int i = 0; i < locked_count; ++i) held[i]->lock();
}

void unlock_all() {
  for (int i = locked_count; i-- > 0;) held[i]->unlock();
}

void unlock_in_child() {
  unlock_all();
  if (used.load(std::memory_order_relaxed)) bad_fork.store(true, std::memory_order_relaxed);
}

}  // namespace

void hold_across_fork(std::mutex& mutex) noexcept {
  static std::mutex registering;
  static const int handlers = pthread_atfork(lock_all, unlock_all, unlock_in_child);
  const std::lock_guard lock(registering);
  const int index = held_count.load(std::memory_order_relaxed);
  if (handlers != 0 || index == kMostMutexes) {
    std::fprintf(stderr, "gpumemtrace simulated GPU: can't prepare for fork()\n");
    std::abort();
  }
  held[index] = &mutex;
  held_count.store(index + 1, std::memory_order_release);  // pairs with lock_all
}

bool is_in_bad_fork() noexcept { return bad_fork.load(std::memory_order_relaxed); }

void mark_used() noexcept { used.store(true, std::memory_order_relaxed); }

}  // namespace simgpu
