#include "capture/forward_log.h"

#include <algorithm>

namespace gpumemtrace::capture {

ForwardLog::ForwardLog() : changes_(new Change[kCapacity]) {}
ForwardLog::~ForwardLog() = default;

void ForwardLog::claim(std::uint64_t next_node, std::uint32_t site) noexcept {
  const std::uint64_t end = end_.load(std::memory_order_relaxed);
  if (next_node <= end) return;
  const std::uint64_t count = count_.load(std::memory_order_relaxed);
  if (count == 0 || site != last_site_) {
    Change& change = changes_[slot(count)];
    // Whoever reads what is written now also reads this count, and knows that it came too late.
    std::atomic_thread_fence(std::memory_order_release);
    change.first.store(end, std::memory_order_relaxed);
    change.site.store(site, std::memory_order_relaxed);
    last_site_ = site;
    count_.store(count + 1, std::memory_order_release);
  }
  end_.store(next_node, std::memory_order_release);
}

void ForwardLog::clear() noexcept {
  end_.store(0, std::memory_order_relaxed);
  count_.store(0, std::memory_order_relaxed);
  last_site_ = 0;
}

std::uint32_t ForwardLog::find(std::uint64_t node) const noexcept {
  if (node >= end_.load(std::memory_order_acquire)) return 0;
  const std::uint64_t count = count_.load(std::memory_order_acquire);
  std::uint64_t first = count - std::min(count, kCapacity - 1);
  std::uint64_t last = count;  // the change asked for is in [first, last)
  // Backward goes through the nodes from the latest on.
  for (std::uint64_t near = 1; near < last - first; near *= 2) {
    if (changes_[slot(last - near)].first.load(std::memory_order_relaxed) <= node) {
      first = last - near;
      break;
    }
    last -= near;
  }
  while (last - first > 1) {
    const std::uint64_t middle = first + (last - first) / 2;
    const bool is_before = changes_[slot(middle)].first.load(std::memory_order_relaxed) <= node;
    (is_before ? first : last) = middle;
  }
  if (last == first) return 0;
  const Change& change = changes_[slot(first)];
  const std::uint32_t site = change.site.load(std::memory_order_relaxed);
  const bool is_right = change.first.load(std::memory_order_relaxed) <= node;
  // Overwritten meanwhile? What is overwritten has higher numbers, so the search went to older ones.
  std::atomic_thread_fence(std::memory_order_acquire);
  const std::uint64_t now = count_.load(std::memory_order_relaxed);
  return is_right && now - first < kCapacity ? site : 0;
}

}  // namespace gpumemtrace::capture
