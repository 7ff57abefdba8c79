#include "compute/segment_blocks.h"

#include <iterator>

namespace gpumemtrace::compute {

// --- segments ---

std::uint32_t SegmentBlocks::add(std::int16_t device, std::uint64_t base, std::uint64_t size,
                                 const Group& group, std::uint64_t page, bool is_size_class_told) {
  const std::uint32_t of = group_for(group);
  std::uint32_t i;
  if (vacant_segments_.empty()) {
    i = static_cast<std::uint32_t>(segments_.size());
    segments_.emplace_back();
  } else {
    i = vacant_segments_.back();
    vacant_segments_.pop_back();
  }
  segments_[i] = {base, size, 0, page, of, kNone, kNone, kNone, is_size_class_told};
  by_base_[{device, base}] = i;
  groups_[of].reserved += size;
  totals(device).reserved += size;
  const std::uint32_t block = new_block(device, base, size, i);
  link_after(i, kNone, block);
  count_free(blocks_[block], true);
  return i;
}

void SegmentBlocks::extend(std::uint32_t segment, std::uint64_t size) {
  Segment& extended = segments_[segment];
  const std::int16_t device = groups_[extended.group].device;
  const std::uint64_t end = extended.end();
  extended.size += size;
  groups_[extended.group].reserved += size;
  totals(device).reserved += size;
  const std::uint32_t last = extended.last;
  if (blocks_[last].state == State::kFree) {
    count_free(blocks_[last], false);
    blocks_[last].size += size;
    count_free(blocks_[last], true);
    return;
  }
  const std::uint32_t block = new_block(device, end, size, segment);
  link_after(segment, last, block);
  count_free(blocks_[block], true);
}

void SegmentBlocks::join(std::uint32_t first, std::uint32_t second) {
  Segment& into = segments_[first];
  Segment& from = segments_[second];
  by_base_.erase({groups_[from.group].device, from.base});
  groups_[from.group].reserved -= from.size;
  groups_[into.group].reserved += from.size;
  into.size += from.size;
  for (std::uint32_t b = from.first; b != kNone; b = blocks_[b].next) {
    if (blocks_[b].state == State::kFree) count_free(blocks_[b], false);
    blocks_[b].segment = first;
    if (blocks_[b].state == State::kFree) count_free(blocks_[b], true);
  }
  blocks_[into.last].next = from.first;
  blocks_[from.first].previous = into.last;
  const std::uint32_t seam = into.last;
  const std::uint32_t after = from.first;
  into.last = from.last;
  from.group = kNone;
  vacant_segments_.push_back(second);
  if (blocks_[seam].state == State::kFree && blocks_[after].state == State::kFree) {
    count_free(blocks_[seam], false);
    count_free(blocks_[after], false);
    blocks_[seam].size += blocks_[after].size;
    drop(after);
    count_free(blocks_[seam], true);
  }
}

std::vector<SegmentBlocks::Block> SegmentBlocks::remove(std::uint32_t segment) {
  const Segment removed = segments_[segment];
  const std::int16_t device = groups_[removed.group].device;
  Totals& sums = totals(device);
  std::vector<Block> in_use;
  for (std::uint32_t b = removed.first, next; b != kNone; b = next) {
    const Block& of = blocks_[b];
    next = of.next;
    if (of.state == State::kFree) {
      count_free(of, false);
    } else {
      (of.state == State::kPending ? sums.pending : sums.live) -= of.size;
      in_use.push_back(of);
    }
    drop(b);
  }
  by_base_.erase({device, removed.base});
  groups_[removed.group].reserved -= removed.size;
  sums.reserved -= removed.size;
  segments_[segment].group = kNone;
  vacant_segments_.push_back(segment);
  return in_use;
}

bool SegmentBlocks::cut(std::uint32_t segment, std::uint64_t begin, std::uint64_t end) {
  if (segment == kNone || segments_[segment].page == 0) return false;
  const std::int16_t device = groups_[segments_[segment].group].device;
  if (begin < segments_[segment].base || end > segments_[segment].end() || begin >= end) {
    return false;
  }
  const std::uint32_t middle = free_block_at(device, begin);
  if (middle == kNone) return false;
  if (blocks_[middle].size < end - begin) {
    count_free(blocks_[middle], false);
    settle(middle);
    return false;
  }
  if (blocks_[middle].size > end - begin) split(middle, end);
  const std::uint32_t after = blocks_[middle].next;
  count_free(blocks_[middle], false);
  Segment whole = segments_[segment];
  drop(middle);
  groups_[whole.group].reserved -= end - begin;
  totals(device).reserved -= end - begin;
  const std::uint64_t rest = whole.end() - end;
  segments_[segment].size = begin - whole.base;
  if (after != kNone) {  // what lies behind becomes a segment of its own
    std::uint32_t right = segment;
    if (begin != whole.base) {
      right = static_cast<std::uint32_t>(segments_.size());
      segments_.push_back(segments_[segment]);
      segments_[right].free = 0;
      segments_[right].last = segments_[segment].last;
      segments_[segment].last = blocks_[after].previous;
      blocks_[blocks_[after].previous].next = kNone;
      blocks_[after].previous = kNone;
      segments_[segment].recent = kNone;
      for (std::uint32_t b = after; b != kNone; b = blocks_[b].next) {
        blocks_[b].segment = right;
        if (blocks_[b].state != State::kFree) continue;
        segments_[segment].free -= blocks_[b].size;
        segments_[right].free += blocks_[b].size;
      }
    } else {
      by_base_.erase({device, whole.base});
    }
    segments_[right].base = end;
    segments_[right].size = rest;
    segments_[right].first = after;
    segments_[right].recent = kNone;
    by_base_[{device, end}] = right;
  } else if (begin == whole.base) {
    by_base_.erase({device, whole.base});
    segments_[segment].group = kNone;
    vacant_segments_.push_back(segment);
  }
  return true;
}

void SegmentBlocks::regroup(std::uint32_t segment, const Group& group) {
  const std::uint32_t wanted = group_for(group);
  Segment& of = segments_[segment];
  if (of.group == wanted) return;
  const auto count = [&](bool is_added) {
    for (std::uint32_t b = of.first; b != kNone; b = blocks_[b].next) {
      if (blocks_[b].state == State::kFree) count_free(blocks_[b], is_added);
    }
  };
  count(false);
  groups_[of.group].reserved -= of.size;
  of.group = wanted;
  groups_[of.group].reserved += of.size;
  count(true);
}

std::uint32_t SegmentBlocks::holder_of(std::int16_t device, std::uint64_t address) const {
  const auto after = by_base_.upper_bound({device, address});
  if (after == by_base_.begin()) return kNone;
  const auto holder = std::prev(after);
  const Segment& segment = segments_[holder->second];
  return holder->first.first == device && address - segment.base < segment.size ? holder->second
                                                                                : kNone;
}

std::uint32_t SegmentBlocks::next_from(std::int16_t device, std::uint64_t address) const {
  const auto next = by_base_.lower_bound({device, address});
  return next != by_base_.end() && next->first.first == device ? next->second : kNone;
}

std::uint32_t SegmentBlocks::group_for(const Group& wanted) {
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    const Group& group = groups_[i];
    if (group.device == wanted.device && group.stream == wanted.stream &&
        group.pool == wanted.pool && group.is_small == wanted.is_small) {
      return static_cast<std::uint32_t>(i);
    }
  }
  Group group{};
  group.device = wanted.device;
  group.stream = wanted.stream;
  group.pool = wanted.pool;
  group.is_small = wanted.is_small;
  set_causes(group, totals(wanted.device).main_stream);
  groups_.push_back(group);
  return static_cast<std::uint32_t>(groups_.size() - 1);
}

void SegmentBlocks::set_causes(Group& group, std::uint64_t main_stream) const noexcept {
  if (group.pool.is_private()) {
    group.when_idle = group.otherwise = FreeCause::kPrivatePool;
  } else if (group.stream != main_stream) {
    group.when_idle = group.otherwise = FreeCause::kOtherStream;
  } else {
    group.when_idle = FreeCause::kIdle;
    group.otherwise = group.is_small ? FreeCause::kSmallPool : FreeCause::kInterleaved;
  }
}

void SegmentBlocks::set_main_stream(std::int16_t device, std::uint64_t stream) {
  Totals& sums = totals(device);
  sums.main_stream = stream;
  sums.free = {};
  for (Group& group : groups_) {
    if (group.device != device) continue;
    set_causes(group, stream);
    sums.free[static_cast<std::size_t>(group.when_idle)] += group.idle;
    sums.free[static_cast<std::size_t>(group.otherwise)] += group.free - group.idle;
  }
}

SegmentBlocks::Totals& SegmentBlocks::totals(std::int16_t device) {
  if (cached_ == nullptr || cached_device_ != device) {
    cached_ = &totals_[device];
    cached_device_ = device;
  }
  return *cached_;
}

// --- blocks ---

std::uint32_t SegmentBlocks::free_block_at(std::int16_t device, std::uint64_t address) {
  const std::uint32_t exact = find(address, device);
  if (exact != kNone) return blocks_[exact].state == State::kFree ? exact : kNone;
  const std::uint32_t holder = holder_of(device, address);
  if (holder == kNone) return kNone;
  Segment& segment = segments_[holder];
  std::uint32_t b = segment.recent;
  if (b == kNone || blocks_[b].address > address) b = segment.first;
  while (b != kNone && address - blocks_[b].address >= blocks_[b].size) b = blocks_[b].next;
  segment.recent = b;
  if (b == kNone || blocks_[b].state != State::kFree) return kNone;
  return split(b, address);
}

// Of a free block; returns the second half, free too.
std::uint32_t SegmentBlocks::split(std::uint32_t block, std::uint64_t address) {
  count_free(blocks_[block], false);
  const std::uint64_t before = address - blocks_[block].address;
  const std::uint32_t second = new_block(blocks_[block].device, address,
                                         blocks_[block].size - before, blocks_[block].segment);
  blocks_[block].size = before;
  link_after(blocks_[block].segment, block, second);
  count_free(blocks_[block], true);
  count_free(blocks_[second], true);
  return second;
}

void SegmentBlocks::take(std::uint32_t block, std::uint64_t size, std::int64_t requested,
                         std::int64_t number) {
  count_free(blocks_[block], false);
  const std::uint64_t rest = blocks_[block].size - size;
  if (rest != 0) {
    const std::uint32_t remainder = new_block(blocks_[block].device, blocks_[block].address + size,
                                              rest, blocks_[block].segment);
    link_after(blocks_[block].segment, block, remainder);
    count_free(blocks_[remainder], true);
  }
  Block& taken = blocks_[block];
  taken.size = size;
  taken.requested = requested;
  taken.number = number;
  taken.state = State::kLive;
  taken.is_shared = false;
  totals(taken.device).live += size;
}

void SegmentBlocks::set_pending(std::uint32_t block) {
  Block& of = blocks_[block];
  of.state = State::kPending;
  totals(of.device).live -= of.size;
  totals(of.device).pending += of.size;
}

void SegmentBlocks::release(std::uint32_t block) {
  Totals& sums = totals(blocks_[block].device);
  (blocks_[block].state == State::kPending ? sums.pending : sums.live) -= blocks_[block].size;
  blocks_[block].state = State::kFree;
  settle(block);
}

void SegmentBlocks::settle(std::uint32_t block) {
  const std::uint32_t previous = blocks_[block].previous;
  if (previous != kNone && blocks_[previous].state == State::kFree) {
    count_free(blocks_[previous], false);
    blocks_[previous].size += blocks_[block].size;
    drop(block);
    block = previous;
  }
  const std::uint32_t next = blocks_[block].next;
  if (next != kNone && blocks_[next].state == State::kFree) {
    count_free(blocks_[next], false);
    blocks_[block].size += blocks_[next].size;
    drop(next);
  }
  count_free(blocks_[block], true);
}

std::uint64_t SegmentBlocks::idle_bytes(std::uint32_t block) const noexcept {
  const Block& of = blocks_[block];
  return of.state == State::kFree ? idle_of(segments_[of.segment], of) : 0;
}

std::uint64_t SegmentBlocks::idle_of(const Segment& segment, const Block& block) const noexcept {
  if (segment.page == 0) return block.size == segment.size ? block.size : 0;
  if (block.size < segment.page) return 0;
  const std::uint64_t begin = block.address - segment.base;
  const std::uint64_t first = (begin + segment.page - 1) / segment.page;
  const std::uint64_t last = (begin + block.size) / segment.page;
  return last > first ? (last - first) * segment.page : 0;
}

void SegmentBlocks::count_free(const Block& block, bool is_added) noexcept {
  Segment& segment = segments_[block.segment];
  Group& group = groups_[segment.group];
  std::uint64_t idle = idle_of(segment, block);
  std::uint64_t size = block.size;
  if (!is_added) {
    size = 0 - size;
    idle = 0 - idle;
  }
  segment.free += size;
  group.free += size;
  group.idle += idle;
  auto& free = totals(block.device).free;
  free[static_cast<std::size_t>(group.when_idle)] += idle;
  free[static_cast<std::size_t>(group.otherwise)] += size - idle;
}

std::uint32_t SegmentBlocks::new_block(std::int16_t device, std::uint64_t address,
                                       std::uint64_t size, std::uint32_t segment) {
  std::uint32_t i;
  if (vacant_blocks_.empty()) {
    i = static_cast<std::uint32_t>(blocks_.size());
    blocks_.emplace_back();
  } else {
    i = vacant_blocks_.back();
    vacant_blocks_.pop_back();
  }
  blocks_[i] = {address, size, 0, -1, 0, segment, kNone, kNone, device, State::kFree, false};
  table_.insert(address, device, i);
  return i;
}

// Its bytes are counted no more.
void SegmentBlocks::drop(std::uint32_t block) {
  unlink(block);
  BlockTable<std::uint32_t>::Slot gone;
  table_.erase(blocks_[block].address, blocks_[block].device, &gone);
  vacant_blocks_.push_back(block);
}

void SegmentBlocks::link_after(std::uint32_t segment, std::uint32_t previous, std::uint32_t block) {
  Segment& of = segments_[segment];
  const std::uint32_t next = previous == kNone ? of.first : blocks_[previous].next;
  blocks_[block].previous = previous;
  blocks_[block].next = next;
  (previous == kNone ? of.first : blocks_[previous].next) = block;
  (next == kNone ? of.last : blocks_[next].previous) = block;
}

void SegmentBlocks::unlink(std::uint32_t block) {
  const Block& of = blocks_[block];
  Segment& segment = segments_[of.segment];
  (of.previous == kNone ? segment.first : blocks_[of.previous].next) = of.next;
  (of.next == kNone ? segment.last : blocks_[of.next].previous) = of.previous;
  if (segment.recent == block) segment.recent = of.previous;
}

}  // namespace gpumemtrace::compute
