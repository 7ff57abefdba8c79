// The recorder's part for calls that come once, or once in a while.
#include "torch/recorder.h"

namespace gpumemtrace::hook {

using capture::push;

void Recorder::initialized(int device_count) noexcept {
  device_count_.store(device_count, std::memory_order_relaxed);
  try {
    for (std::size_t size = 1; size < (std::size_t{1} << 40); size *= 2) {
      if (is_rounded_to_power2_divisions(size)) distrust_rounding();
    }
    if (native_.name() != "native") {  // cudaMallocAsync: rounds nothing, calls no miss callback
      distrust_rounding();
      always_watch_.store(true, std::memory_order_relaxed);
      for (int device = 0; is_known(device) && device < device_count; ++device) {
        attention_.fetch_or(watch_bit(device), std::memory_order_relaxed);
      }
    }
  } catch (...) {
    distrust_rounding();
  }
}

void Recorder::tell_baseline(Ring* ring) noexcept {
  const std::uint64_t place = ring->head();
  const bool begins_alone = !others_began_before();
  std::uint64_t pushed = 0;
  auto known = SegmentKnowledge::kNotKnown;
  try {
    const BlockSnapshot memory = take_snapshot(native_);
    known = knowledge_of(memory);
    pushed = push_known_memory(ring, memory);
  } catch (...) {
  }
  const int count = device_count_.load(std::memory_order_relaxed);
  for (int device = 0; device < count; ++device) {
    const auto index = static_cast<DeviceIndex>(device);
    Totals totals;
    if (!read_totals(native_, index, totals) || (totals.reserved == 0 && totals.active == 0)) {
      continue;
    }
    if (is_known(device)) {
      told_[static_cast<std::size_t>(device)].retries.store(totals.retries,
                                                            std::memory_order_relaxed);
    }
    push_stats(ring, index, StatsCause::kBaseline, totals);
    ++pushed;
    if (others_in_flight()) want_resync(index);
    // Blocks given back that wait for another stream bound free ones, and no event tells of them.
    if (is_known(index) && totals.pending() != 0) {
      attention_.fetch_or(watch_bit(index), std::memory_order_seq_cst);
    }
  }
  // Whoever was at work meanwhile may be in the snapshot, in the ring, in both or in neither.
  const bool alone = begins_alone && ring->head() == place + pushed && !others_in_flight();
  segments_.begin(alone ? known : SegmentKnowledge::kNotKnown);
}

SegmentKnowledge::State Recorder::knowledge_of(const BlockSnapshot& memory) const noexcept {
  if (!memory.is_whole) return SegmentKnowledge::kNotKnown;
  if (memory.segments.empty()) return SegmentKnowledge::kNothingYet;
  const bool expandable = memory.segments.front().is_expandable;
  for (const KnownSegment& segment : memory.segments) {
    if (segment.is_expandable != expandable) return SegmentKnowledge::kNotKnown;
  }
  return expandable ? SegmentKnowledge::kExpandable : SegmentKnowledge::kFixed;
}

// Returns the number of events.
std::uint64_t Recorder::push_known_memory(Ring* ring, const BlockSnapshot& memory) noexcept {
  std::uint64_t pushed = memory.segments.size() + memory.blocks.size();
  told_segments_.clear();
  for (const KnownSegment& segment : memory.segments) {
    told_segments_.add(segment);
    Event event = segment_event(segment);
    push(ring, event);
    pushed += push_pool_of(ring, segment);
  }
  std::array<std::uint64_t, 256> allocated{};  // by device; the session has told of nothing yet
  for (const KnownBlock& block : memory.blocks) {
    auto& sum = allocated[static_cast<std::uint8_t>(block.device)];
    sum += block.size;
    push_block(ring, block, sum);
  }
  return pushed;
}

void Recorder::push_block(Ring* ring, const KnownBlock& block, std::uint64_t allocated) noexcept {
  Event event{};
  event.kind = Kind::kAlloc;
  event.address = block.address;
  event.size = block.requested;
  event.stream = block.stream;
  event.extra = allocated;
  event.device = block.device;
  push(ring, event);
}

void Recorder::stream_used(Ring* ring, const void* block, DeviceIndex device,
                           cudaStream_t stream) noexcept {
  if (is_known(device)) {
    pending_blocks_.remember(block);
    attention_.fetch_or(watch_bit(device), std::memory_order_seq_cst);
  }
  if (ring == nullptr) return;
  Event event{};
  event.kind = Kind::kRecordStream;
  event.address = reinterpret_cast<std::uintptr_t>(block);
  event.stream = reinterpret_cast<std::uintptr_t>(stream);
  event.device = device;
  push(ring, event);
}

void Recorder::cache_emptied(Ring* ring, std::uint64_t duration_ns) noexcept {
  if (ring == nullptr) return;
  Event event{};
  event.kind = Kind::kEmptyCache;
  event.device = -1;
  event.extra = duration_ns;
  push(ring, event);
  for (int device = 0; device < capture::kMaxDevices; ++device) {
    if (told_[static_cast<std::size_t>(device)].anything.load(std::memory_order_relaxed)) {
      tell(ring, static_cast<DeviceIndex>(device), StatsCause::kRelease);
    }
  }
}

void Recorder::released(Ring* ring, DeviceIndex device) noexcept {
  if (ring != nullptr) tell(ring, device, StatsCause::kRelease);
}

void Recorder::pool_event(Ring* ring, Kind kind, DeviceIndex device, MempoolId_t pool) noexcept {
  open_pools_.fetch_add(kind == Kind::kPoolBegin ? 1 : -1, std::memory_order_relaxed);
  if (ring == nullptr) return;
  Event event{};
  event.kind = kind;
  event.address = pool.first;
  event.size = pool.second;
  event.device = device;
  push(ring, event);
}

void Recorder::pool_restored(Ring* ring, DeviceIndex device, const std::vector<void*>& freed,
                             const std::vector<KnownBlock>& created) noexcept {
  distrust_segments();
  for (const void* block : freed) {
    forget(block);
    if (ring == nullptr) continue;
    Event event{};
    event.kind = Kind::kFree;
    event.address = reinterpret_cast<std::uintptr_t>(block);
    event.device = -1;
    push(ring, event);
  }
  if (ring == nullptr) return;
  for (KnownBlock block : created) {
    block.requested = block.size;
    push_block(ring, block, 0);
  }
  tell(ring, device, StatsCause::kResync);
}

void Recorder::counters_reset(DeviceIndex device) noexcept {
  if (is_known(device)) {
    told_[static_cast<std::size_t>(device)].retries.store(0, std::memory_order_relaxed);
  }
}

}  // namespace gpumemtrace::hook
