// The replay's part for memory that comes from the driver and goes back to it.
#include <algorithm>
#include <vector>

#include "compute/segments.h"

namespace gpumemtrace::compute {
namespace {

using Block = SegmentBlocks::Block;
constexpr std::uint32_t kNone = SegmentBlocks::kNone;

// PyTorch's kSmallBuffer and kLargeBuffer: what expandable segments are mapped in.
constexpr std::uint64_t kSmallPage = std::uint64_t{2} << 20;
constexpr std::uint64_t kLargePage = std::uint64_t{20} << 20;

}  // namespace

void SegmentReplay::segment(std::int16_t number, const Columns& records, std::size_t i) {
  Device& state = device(number);
  const std::uint64_t base = records.address[i];
  const auto size = static_cast<std::uint64_t>(records.size[i]);
  if (size == 0 || size >= kTooLarge || base > UINT64_MAX - kTooLarge) {
    state.in_doubt = true;
    return;
  }
  state.has_segments = true;
  const std::uint64_t end = base + size;
  const Kind kind = records.kind_at(i);
  if (kind == Kind::kSegmentFree) {
    const std::uint32_t gone = blocks_.holder_of(number, base);
    if (gone != kNone && blocks_.segment(gone).base == base && blocks_.segment(gone).size == size) {
      remove(number, gone);
    } else {
      state.in_doubt = true;
    }
    return;
  }
  if (kind == Kind::kSegmentUnmap) {
    if (!blocks_.cut(blocks_.holder_of(number, base), base, end)) state.in_doubt = true;
    return;
  }

  SegmentBlocks::Group group{};
  group.device = number;
  group.stream = records.stream[i];
  const std::uint32_t size_class = records.flags[i] & (kSegmentSmall | kSegmentLarge);
  group.is_small = size_class != 0 ? size_class == kSegmentSmall : size == kSmallPage;
  for (const auto& open : state.open_pools) {
    if (open.thread == records.thread[i] || !group.pool.is_private()) group.pool = open.pool;
  }
  const bool is_told = size_class != 0;
  if (kind == Kind::kSegmentAlloc) {
    const std::uint32_t same = blocks_.holder_of(number, base);
    if (same != kNone && blocks_.segment(same).base == base && blocks_.segment(same).size == size &&
        blocks_.group_of(blocks_.segment(same)).stream == group.stream) {
      return;
    }
    // What overlaps it went back to the driver before.
    for (std::uint32_t old = same; old != kNone; old = blocks_.holder_of(number, base)) {
      remove(number, old);
    }
    for (std::uint32_t old = blocks_.next_from(number, base);
         old != kNone && blocks_.segment(old).base < end; old = blocks_.next_from(number, base)) {
      remove(number, old);
    }
    insert(number, base, size, group, 0, is_told);
    state.is_growing = !house(number);
    return;
  }
  // kSegmentMap: as many bytes from `base` on, wherever nothing is mapped yet.
  const std::uint64_t page = group.is_small ? kSmallPage : kLargePage;
  std::uint64_t at = base;
  for (std::uint64_t left = size; left > 0;) {
    const std::uint32_t holder = blocks_.holder_of(number, at);
    if (holder != kNone) {
      at = blocks_.segment(holder).end();
      continue;
    }
    const std::uint32_t next = blocks_.next_from(number, at);
    const std::uint64_t gap = next == kNone ? left : blocks_.segment(next).base - at;
    const std::uint64_t piece = std::min(left, gap);
    insert(number, at, piece, group, page, is_told);
    at += piece;
    left -= piece;
  }
  state.is_growing = !house(number);
}

void SegmentReplay::insert(std::int16_t number, std::uint64_t base, std::uint64_t size,
                           const SegmentBlocks::Group& group, std::uint64_t page,
                           bool is_size_class_told) {
  const auto joins = [&](std::uint32_t other) {
    if (other == kNone || page == 0) return false;
    const auto& segment = blocks_.segment(other);
    const auto& of = blocks_.group_of(segment);
    return segment.page != 0 && of.stream == group.stream && of.pool == group.pool;
  };
  const std::uint32_t before = base == 0 ? kNone : blocks_.holder_of(number, base - 1);
  std::uint32_t whole = before;
  if (joins(before)) {
    blocks_.extend(before, size);
  } else {
    whole = blocks_.add(number, base, size, group, page, is_size_class_told);
  }
  const std::uint32_t after = blocks_.holder_of(number, base + size);
  if (joins(after)) blocks_.join(whole, after);
}

void SegmentReplay::remove(std::int16_t number, std::uint32_t segment) {
  Device& state = device(number);
  const std::uint64_t base = blocks_.segment(segment).base;
  const std::uint64_t end = blocks_.segment(segment).end();
  // Nothing can wait for another stream in memory that has gone.
  while (true) {
    const auto waits =
        std::find_if(state.pending.begin(), state.pending.end(),
                     [&](std::uint32_t b) { return blocks_.block(b).address - base < end - base; });
    if (waits == state.pending.end()) break;
    const std::uint32_t b = *waits;
    state.pending.erase(waits);
    blocks_.release(b);
  }
  for (const Block& block : blocks_.remove(segment)) {
    add_homeless(number, block.address,
                 {static_cast<std::uint64_t>(block.requested), 0, block.number});
  }
}

void SegmentReplay::segment_pool(std::int16_t number, const Columns& records, std::size_t i) {
  const std::uint32_t holder = blocks_.holder_of(number, records.address[i]);
  if (holder == kNone) return;
  auto group = blocks_.group_of(blocks_.segment(holder));
  group.pool = {static_cast<std::uint64_t>(records.size[i]), records.stream[i]};
  blocks_.regroup(holder, group);
}

bool SegmentReplay::infer_flush(std::int16_t number, std::uint64_t reserved) {
  std::uint64_t idle = 0;
  std::uint64_t idle_private = 0;
  for (const auto& group : blocks_.groups()) {
    if (group.device == number) (group.pool.is_private() ? idle_private : idle) += group.idle;
  }
  const std::uint64_t given_back = blocks_.totals(number).reserved - reserved;
  if (given_back != idle && given_back != idle + idle_private) return false;
  blocks_.release_idle(number, [&](const SegmentBlocks::Group& group) {
    return given_back != idle || !group.pool.is_private();
  });
  return true;
}

}  // namespace gpumemtrace::compute
