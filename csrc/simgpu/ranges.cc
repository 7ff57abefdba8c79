#include "ranges.h"

#include <algorithm>
#include <iterator>

namespace simgpu {

void RangeSet::add(uint64_t start, uint64_t size) {
  if (size == 0) return;
  uint64_t end = start + size;
  // The first range that touches [start, end): it may begin before it.
  auto range = ranges_.upper_bound(start);
  if (range != ranges_.begin() && std::prev(range)->second >= start) --range;
  while (range != ranges_.end() && range->first <= end) {
    start = std::min(start, range->first);
    end = std::max(end, range->second);
    range = ranges_.erase(range);
  }
  ranges_.emplace(start, end);
}

void RangeSet::remove(uint64_t start, uint64_t size) {
  const uint64_t end = start + size;
  auto range = ranges_.upper_bound(start);
  if (range != ranges_.begin() && std::prev(range)->second > start) --range;
  while (range != ranges_.end() && range->first < end) {
    const auto [old_start, old_end] = *range;
    range = ranges_.erase(range);
    if (old_start < start) ranges_.emplace(old_start, start);
    if (old_end > end) ranges_.emplace(end, old_end);
  }
}

uint64_t RangeSet::take_lowest(uint64_t size) {
  for (auto range = ranges_.begin(); range != ranges_.end(); ++range) {
    const auto [start, end] = *range;
    if (end - start < size) continue;
    ranges_.erase(range);
    if (end - start > size) ranges_.emplace(start + size, end);
    return start;
  }
  return 0;
}

bool RangeSet::contains(uint64_t start, uint64_t size) const {
  auto range = ranges_.upper_bound(start);
  return range != ranges_.begin() && std::prev(range)->second >= start + size;
}

bool RangeSet::has_range(uint64_t start, uint64_t size) const {
  const auto range = ranges_.find(start);
  return range != ranges_.end() && range->second == start + size;
}

}  // namespace simgpu
