// The recorder's part for calls that come once, or once in a while.
#include <time.h>

#include "torch/block_streams.h"
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
      stop_following_streams();
    }
  } catch (...) {
    distrust_rounding();
    stop_following_streams();
  }
  follow_streams();
}

// An operation within another goes on: who begins the session waits for the outer one.
void Recorder::stand_aside(bool is_inner) noexcept {
  if (is_inner && !is_slot_shared()) return;
  do {
    leave();
    while ((attention_.load(std::memory_order_acquire) & kHeld) != 0) {
      const timespec moment{0, 20'000};
      nanosleep(&moment, nullptr);
    }
    enter();
    hold_order();
  } while ((attention_.load(std::memory_order_acquire) & kHeld) != 0);
}

void Recorder::begin_session(Ring* ring, void (*activate)(Ring*) noexcept) noexcept {
  constexpr std::uint64_t kPatienceNs = 100'000'000;
  attention_.fetch_or(kHeld, std::memory_order_seq_cst);
  const bool alone = wait_for_others(kPatienceNs);
  activate(ring);
  if (!alone) attention_.fetch_and(~kHeld, std::memory_order_seq_cst);
  tell_baseline(ring, alone);
  attention_.fetch_and(~kHeld, std::memory_order_seq_cst);
}

void Recorder::tell_baseline(Ring* ring, bool alone) noexcept {
  // Whoever is at work may be in a snapshot, in the ring, in both or in neither.
  const bool knows_blocks = alone && tell_known_memory(ring);
  if (!knows_blocks) {
    segments_.give_up();
    Event event{};
    event.kind = Kind::kGap;
    event.device = -1;
    push(ring, event);
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
    if (!alone) want_resync(index);
    // Blocks given back that wait for another stream bound free ones, and no event tells of them.
    if (is_known(index) && totals.pending() != 0) {
      attention_.fetch_or(watch_bit(index), std::memory_order_seq_cst);
    }
  }
}

// False: the allocator would not say what it holds.
bool Recorder::tell_known_memory(Ring* ring) noexcept {
  try {
    const BlockSnapshot memory = take_snapshot(native_);
    if (!memory.is_whole) return false;
    segments_.begin(knowledge_of(memory));
    push_known_memory(ring, memory);
    return true;
  } catch (...) {
    return false;
  }
}

SegmentKnowledge::State Recorder::knowledge_of(const BlockSnapshot& memory) const noexcept {
  if (memory.segments.empty()) return SegmentKnowledge::kNothingYet;
  const bool expandable = memory.segments.front().is_expandable;
  for (const KnownSegment& segment : memory.segments) {
    if (segment.is_expandable != expandable) return SegmentKnowledge::kNotKnown;
  }
  return expandable ? SegmentKnowledge::kExpandable : SegmentKnowledge::kFixed;
}

void Recorder::push_known_memory(Ring* ring, const BlockSnapshot& memory) noexcept {
  told_segments_.clear();
  for (const KnownSegment& segment : memory.segments) {
    told_segments_.add(segment);
    Event event = segment_event(segment);
    push(ring, event);
    push_pool_of(ring, segment);
  }
  std::array<std::uint64_t, 256> allocated{};  // by device; the session has told of nothing yet
  for (const KnownBlock& block : memory.blocks) {
    auto& sum = allocated[static_cast<std::uint8_t>(block.device)];
    sum += block.size;
    push_block(ring, block, sum);
  }
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
