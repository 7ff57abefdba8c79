// The recorder's part for what the allocator takes from the driver and gives back.
#include "torch/recorder.h"

namespace gpumemtrace::hook {

using capture::push;

// After a miss: the memory that was taken for `block` (nullptr when the request failed), and what else
// has changed.
std::uint64_t Recorder::push_segments(Ring* ring, const Event& request, const void* block,
                                      const Totals& totals, std::uint64_t duration_ns) noexcept {
  const auto device = static_cast<DeviceIndex>(request.device);
  if (block != nullptr) {
    segments_.agrees(uses_expandable_segments() ? SegmentKnowledge::kExpandable
                                                : SegmentKnowledge::kFixed);
  }
  std::uint64_t pushed = 0;
  if (is_known(device)) {
    // The cache went back: what was taken since may lie where other segments were.
    const auto& told = told_[static_cast<std::size_t>(device)].retries;
    const bool is_flushed = totals.retries > told.load(std::memory_order_relaxed);
    if (is_flushed && !others_in_flight() && push_differences(ring, device, pushed)) return pushed;
  }
  if (block != nullptr) pushed += push_segment(ring, request, block, totals, duration_ns);
  return pushed + push_differences_if_any(ring, device, totals);
}

std::uint64_t Recorder::push_differences_if_any(Ring* ring, DeviceIndex device,
                                                const Totals& totals) noexcept {
  std::uint64_t pushed = 0;
  const bool differs = is_known(device) && told_segments_.reserved(device) != totals.reserved;
  if (differs && !others_in_flight()) push_differences(ring, device, pushed);
  return pushed;
}

// The allocator may also have found a block after all, freed by another callback: then nothing was
// taken from the driver, and the block is not the first of its segment or reserved has not grown.
std::uint64_t Recorder::push_segment(Ring* ring, const Event& request, const void* block,
                                     const Totals& totals, std::uint64_t duration_ns) noexcept {
  const auto device = static_cast<DeviceIndex>(request.device);
  KnownSegment segment{};
  segment.address = reinterpret_cast<std::uintptr_t>(block);
  segment.stream = request.stream;
  segment.device = device;
  segment.is_large = request.size > kSmallRequest;
  std::vector<KnownSegment> taken;
  try {
    segment.is_expandable = uses_expandable_segments();
    if (segment.is_expandable) {
      const std::size_t before = told_segments_.reserved(device);
      if (totals.reserved <= before) return 0;
      taken = told_segments_.map(segment, totals.reserved - before);
    } else {
      // Throws for a block of an expandable segment, which is why it isn't asked above.
      if (native_.getBaseAllocation(const_cast<void*>(block), &segment.size) != block) return 0;
      told_segments_.add(segment);
      taken.push_back(segment);
    }
    if (open_pools_.load(std::memory_order_relaxed) > 0) {
      for (const KnownSegment& now : take_snapshot(native_).segments) {
        for (KnownSegment& mine : taken) {
          if (mine.address - now.address < now.size) mine.pool = now.pool;
        }
      }
    }
  } catch (...) {
    segments_.give_up();
  }
  std::uint64_t pushed = 0;
  for (const KnownSegment& mine : taken) {
    Event event = segment_event(mine);
    event.extra = duration_ns;
    push(ring, event);
    pushed += 1 + push_pool_of(ring, mine);
  }
  return pushed;
}

// Looks at every segment of the device. Adds the number of events to `pushed`; false: the allocator
// would not say what it holds.
bool Recorder::push_differences(Ring* ring, DeviceIndex device, std::uint64_t& pushed) noexcept {
  if (always_watch_.load(std::memory_order_relaxed)) return false;  // no segments, no snapshot
  try {
    const BlockSnapshot memory = take_snapshot(native_);
    if (!memory.is_whole) return false;
    for (Event& event : told_segments_.reconcile(device, memory.segments)) {
      push(ring, event);
      ++pushed;
      if (event.kind != Kind::kSegmentAlloc && event.kind != Kind::kSegmentMap) continue;
      for (const KnownSegment& segment : memory.segments) {
        if (segment.device != device || event.address - segment.address >= segment.size) continue;
        KnownSegment piece = segment;
        piece.address = event.address;
        pushed += push_pool_of(ring, piece);
      }
    }
    return true;
  } catch (...) {
    return false;
  }
}

std::uint64_t Recorder::push_pool_of(Ring* ring, const KnownSegment& segment) noexcept {
  const bool is_private = segment.pool.first != 0 || segment.pool.second != 0;
  if (!is_private && open_pools_.load(std::memory_order_relaxed) <= 0) return 0;
  Event event{};
  event.kind = Kind::kSegmentPool;
  event.address = segment.address;
  event.size = segment.pool.first;
  event.stream = segment.pool.second;
  event.device = segment.device;
  push(ring, event);
  return 1;
}

}  // namespace gpumemtrace::hook
