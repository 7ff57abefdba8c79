// The map from thread index to OS thread, filled by producers, read by the drain.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace gpumemtrace::capture {

class NameLog;

struct ThreadEntry {
  pid_t os_tid;
  char name[16];  // as the kernel knows it (15 bytes and a NUL), read when first seen
};

// Index i is the i-th entry, counted from 1. Entries are never reused: 20 bytes a thread.
class ThreadRegistry {
 public:
  // The calling thread. 0 when memory ran out.
  std::uint32_t add_current() noexcept;

  // acquire <- release in add_current. No lock, so that asking often costs nobody anything.
  std::size_t size() const noexcept { return size_.load(std::memory_order_acquire); }
  // Appends the entries from number `first` (0-based) on.
  void copy_from(std::size_t first, std::vector<ThreadEntry>& out) const;

  // Hears of each new thread; nullptr = nobody does.
  void set_log(NameLog* log) {
    const std::lock_guard guard(mutex_);
    log_ = log;
  }

  // Around fork: the forking thread holds the lock, so that the child finds it whole.
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }
  void forget_all_locked() noexcept {
    entries_.clear();
    log_ = nullptr;
    size_.store(0, std::memory_order_release);
  }

 private:
  mutable std::mutex mutex_;
  std::vector<ThreadEntry> entries_;
  std::atomic<std::size_t> size_{0};
  NameLog* log_ = nullptr;
};

// Lives for the whole process, through exit.
ThreadRegistry& thread_registry() noexcept;

}  // namespace gpumemtrace::capture
