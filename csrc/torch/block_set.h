// A few blocks of which something must be remembered until they are given back.
#pragma once

#include <atomic>
#include <cstddef>
#include <mutex>
#include <unordered_set>

namespace gpumemtrace::hook {

// Any thread. The lock is held for a look-up, never while calling anything.
class BlockSet {
 public:
  void remember(const void* block) noexcept {
    const std::lock_guard lock(mutex_);
    try {
      blocks_.insert(block);
    } catch (...) {
      overflowed_ = true;  // out of host memory: from now on, never empty
    }
    count_.store(blocks_.size(), std::memory_order_relaxed);
  }

  // Whether it was remembered.
  bool forget(const void* block) noexcept {
    if (count_.load(std::memory_order_relaxed) == 0) return false;
    const std::lock_guard lock(mutex_);
    const bool was_there = blocks_.erase(block) != 0;
    count_.store(blocks_.size(), std::memory_order_relaxed);
    return was_there;
  }

  bool empty() const noexcept {
    return count_.load(std::memory_order_relaxed) == 0 && !overflowed_;
  }

 private:
  std::mutex mutex_;
  std::unordered_set<const void*> blocks_;
  std::atomic<std::size_t> count_{0};
  std::atomic<bool> overflowed_{false};
};

}  // namespace gpumemtrace::hook
