#include "compute/large_segments.h"

#include <algorithm>
#include <iterator>

namespace gpumemtrace::compute {

void LargeSegments::add(std::uint64_t base, std::int64_t size) {
  const std::uint64_t end = base + static_cast<std::uint64_t>(size);
  if (size <= 0 || end < base) return;  // a broken file
  auto first = segments_.lower_bound(base);
  if (first != segments_.begin()) {
    const auto before = std::prev(first);
    if (before->first + static_cast<std::uint64_t>(before->second.size) > base) first = before;
  }
  segments_.erase(first, segments_.lower_bound(end));
  segments_.emplace(base, Segment{size, {}});
}

std::int64_t LargeSegments::take(std::uint64_t address, std::int64_t rounded) {
  const auto holder = holder_of(address);
  if (holder == segments_.end()) return rounded;
  auto& [base, segment] = *holder;
  const auto next = std::upper_bound(segment.live.begin(), segment.live.end(), address);
  const std::uint64_t end =
      next == segment.live.end() ? base + static_cast<std::uint64_t>(segment.size) : *next;
  const auto free_bytes = static_cast<std::int64_t>(end - address);
  segment.live.insert(next, address);
  const std::int64_t remaining = free_bytes - rounded;
  return remaining >= 0 && remaining <= kSmallSize ? free_bytes : rounded;
}

void LargeSegments::give_back(std::uint64_t address) {
  const auto holder = holder_of(address);
  if (holder == segments_.end()) return;
  auto& live = holder->second.live;
  const auto block = std::lower_bound(live.begin(), live.end(), address);
  if (block != live.end() && *block == address) live.erase(block);
}

void LargeSegments::forget_empty() {
  for (auto it = segments_.begin(); it != segments_.end();) {
    it = it->second.live.empty() ? segments_.erase(it) : std::next(it);
  }
}

LargeSegments::Segments::iterator LargeSegments::holder_of(std::uint64_t address) {
  auto after = segments_.upper_bound(address);
  if (after == segments_.begin()) return segments_.end();
  const auto holder = std::prev(after);
  return address - holder->first < static_cast<std::uint64_t>(holder->second.size)
             ? holder
             : segments_.end();
}

}  // namespace gpumemtrace::compute
