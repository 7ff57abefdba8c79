#include "torch/recorder.h"

#include <c10/cuda/CUDAFunctions.h>

#include <bit>

#include "capture/clock.h"
#include "torch/device_memory.h"

namespace gpumemtrace::hook {

using capture::push;

// What is to be corrected is corrected first: a block made before that could not be told by its size.
std::uint64_t Recorder::begin_with_care(Ring* ring, std::size_t size) noexcept {
  if (!others_in_flight()) tell_resyncs(ring);
  const std::uint64_t begin = ring->head();
  if ((attention_.load(std::memory_order_relaxed) & kWatched) != 0) note_totals_before();
  if (size > kSmallRequest) t_notes.any = t_notes.unsure = true;
  return begin;
}

void Recorder::note_totals_before() noexcept {
  c10::DeviceIndex device = -1;
  if (c10::cuda::GetDevice(&device) == cudaSuccess && is_known(device) &&
      (attention_.load(std::memory_order_relaxed) & watch_bit(device)) != 0 &&
      read_totals(native_, device, t_notes.before) && !others_in_flight()) {
    t_notes.any = t_notes.has_before = true;
  }
}

// With expandable segments every remainder is split off, so rounding tells a block's size.
bool Recorder::block_may_be_larger(std::size_t size) noexcept {
  const std::size_t exact_up_to = exact_up_to_.load(std::memory_order_relaxed);
  if (size <= exact_up_to) return false;
  return exact_up_to == kDistrusted || !uses_expandable_segments() ||
         !segments_.agrees(SegmentKnowledge::kExpandable);
}

// Whether a reader can't tell the block of a request above 1 MiB, which was found in the cache.
bool Recorder::large_needs_totals(const Ring* ring, std::uint64_t begin,
                                  DeviceIndex device) noexcept {
  if (exact_up_to_.load(std::memory_order_relaxed) == kDistrusted) return true;
  if (uses_expandable_segments()) return !segments_.agrees(SegmentKnowledge::kExpandable);
  return ring->head() != begin || others_in_flight() || resync_pending(ring, device) ||
         !segments_.agrees(SegmentKnowledge::kFixed) || !splits_every_size();
}

void Recorder::allocated_with_care(Ring* ring, std::uint64_t begin, const void* block,
                                   std::size_t size, DeviceIndex device,
                                   cudaStream_t stream) noexcept {
  if (t_notes.any || large_needs_totals(ring, begin, device)) [[unlikely]] {
    Event event = alloc_event(block, size, device, stream);
    allocated_with_totals(ring, begin, event);
    return;
  }
  Event event = alloc_event(block, size, device, stream);
  push(ring, event);
  if (ring->head() != begin + 1) [[unlikely]] {
    leave_unsized(block);
    want_resync(device);
  }
  finish(ring, begin, device);
}

void Recorder::leave_unsized(const void* block) noexcept {
  unsized_blocks_.remember(block);
  attention_.fetch_or(kUnsized, std::memory_order_seq_cst);
}

void Recorder::allocated_with_totals(Ring* ring, std::uint64_t begin, Event& event) noexcept {
  const auto device = static_cast<DeviceIndex>(event.device);
  const bool missed = t_notes.missed;
  const bool wants_bytes = block_may_be_larger(event.size);
  if (!missed && !t_notes.has_before && !wants_bytes) {
    t_notes.settle();
    push(ring, event);
    finish(ring, begin, device);
    return;
  }
  // Where threads contend, the allocator's lock is the bottleneck: leave it alone until it is quiet.
  bool alone = ring->head() == begin && !others_in_flight();
  Totals totals;
  const bool known = (missed || alone) && read_totals(native_, device, totals);
  alone = alone && known && !others_in_flight();
  std::uint64_t pushed = 1;
  if (alone && t_notes.has_before && push_if_pending_changed(ring, t_notes.before, event, totals)) {
    ++pushed;
  }
  // The reader takes the difference to what it knows as this block's, so that must be right.
  const bool tells_bytes = wants_bytes && alone && !resync_pending(ring, device);
  if (tells_bytes) event.extra = totals.allocated;
  const void* const block = reinterpret_cast<const void*>(event.address);
  push(ring, event);
  alone = alone && ring->head() == begin + pushed;
  if (wants_bytes && !(alone && tells_bytes)) leave_unsized(block);
  if (missed && known) {
    pushed += after_miss(ring, event, block, totals);
    // The totals stand at the end of that: whoever came in between is not in them.
    alone = alone && ring->head() == begin + pushed;
  }
  if (!alone) want_resync(device);
  t_notes.settle();
  if (needs_correction(ring, device)) [[unlikely]]
    correct(ring, device, alone);
  leave();
}

bool Recorder::resync_pending(const Ring* ring, DeviceIndex device) const noexcept {
  return !is_known(device) ||
         (attention_.load(std::memory_order_relaxed) & resync_bit(device)) != 0 ||
         ring->resync_wanted(device) || ring->resync_wanted(-1);
}

// An allocation first takes back the blocks that other streams are done with. Told before the
// allocation itself, or active memory would seem to have been higher than it ever was.
bool Recorder::push_if_pending_changed(Ring* ring, const Totals& before, const Event& request,
                                       const Totals& after) noexcept {
  const auto& told = told_[static_cast<std::size_t>(request.device)].pending;
  if (after.pending() == told.load(std::memory_order_relaxed)) return false;
  Totals between = before;
  between.requested = after.requested - request.size;
  between.active = before.allocated + after.pending();
  push_stats(ring, static_cast<DeviceIndex>(request.device), StatsCause::kResync, between);
  return true;
}

// Before a block goes back, so that its address can't mean another one yet.
void Recorder::forget(const void* block) noexcept {
  pending_blocks_.forget(block);
  if (!unsized_blocks_.forget(block)) return;
  want_resync(-1);
  if (unsized_blocks_.empty()) {
    attention_.fetch_and(~kUnsized, std::memory_order_seq_cst);
    if (!unsized_blocks_.empty()) attention_.fetch_or(kUnsized, std::memory_order_seq_cst);
  }
}

// `alone`: no other thread was about, so a reading is likely to fit its place.
void Recorder::correct(Ring* ring, DeviceIndex device, bool alone) noexcept {
  if (device >= 0) {
    if (ring->resync_wanted(device)) {
      segments_.give_up();
      ring->clear_resync(device);
      want_resync(device);
    }
    if (ring->resync_wanted(-1)) {  // frees were lost: of which device, nobody knows
      segments_.give_up();
      ring->clear_resync(-1);
      want_resync(-1);
    }
  }
  if (alone) tell_resyncs(ring);
  Bits watched = attention_.load(std::memory_order_relaxed) & kWatched;
  for (; watched != 0; watched &= watched - 1) {
    const auto of = static_cast<DeviceIndex>(std::countr_zero(watched) - capture::kMaxDevices);
    if (device < 0 || device == of) tell_if_changed(ring, of);
  }
}

void Recorder::tell_resyncs(Ring* ring) noexcept {
  Bits wanted = attention_.load(std::memory_order_relaxed) & kResyncs;
  if (wanted == 0) return;
  attention_.fetch_and(~wanted, std::memory_order_relaxed);
  for (; wanted != 0; wanted &= wanted - 1) {
    tell(ring, static_cast<DeviceIndex>(std::countr_zero(wanted)), StatsCause::kResync);
  }
}

void Recorder::failed(Ring* ring, std::size_t size, DeviceIndex device,
                      cudaStream_t stream) noexcept {
  Event event{};
  event.kind = Kind::kAllocFailed;
  event.size = size;
  event.site = capture::site_of(Kind::kAllocFailed, size);
  event.stream = reinterpret_cast<std::uintptr_t>(stream);
  event.device = device;
  event.extra = current_device_free_bytes();
  const std::uint64_t place = ring->head();
  Totals totals;
  const bool known = read_totals(native_, device, totals);
  const bool alone = known && !others_in_flight();
  push(ring, event);
  const std::uint64_t pushed = known ? 1 + after_miss(ring, event, nullptr, totals) : 1;
  if (!alone || ring->head() != place + pushed) want_resync(device);
  t_notes.settle();
  leave();
}

// `request`: the event of the allocation that missed; `block`: nullptr when it failed.
std::uint64_t Recorder::after_miss(Ring* ring, const Event& request, const void* block,
                                   const Totals& totals) noexcept {
  const std::uint64_t duration_ns =
      t_notes.missed ? capture::monotonic_ns() - t_notes.missed_ns : 0;
  const auto device = static_cast<DeviceIndex>(request.device);
  std::uint64_t pushed = push_segments(ring, request, block, totals, duration_ns);
  if (is_known(device)) {
    auto& told = told_[static_cast<std::size_t>(device)].retries;
    if (totals.retries > told.exchange(totals.retries, std::memory_order_relaxed)) {
      Event event{};
      event.kind = Kind::kRetry;
      event.size = request.size;
      event.stream = totals.retries;
      event.device = device;
      event.extra = duration_ns;
      push(ring, event);
      ++pushed;
    }
  }
  push_stats(ring, device, StatsCause::kMiss, totals);
  ++pushed;
  try {
    if (is_rounded_to_power2_divisions(request.size)) distrust_rounding();
  } catch (...) {
  }
  return pushed;
}

void Recorder::push_stats(Ring* ring, DeviceIndex device, StatsCause cause,
                          const Totals& totals) noexcept {
  if (is_known(device)) {
    Told& told = told_[static_cast<std::size_t>(device)];
    told.anything.store(true, std::memory_order_relaxed);
    told.pending.store(totals.pending(), std::memory_order_relaxed);
    told.reserved.store(totals.reserved, std::memory_order_relaxed);
  }
  Event event{};
  event.kind = Kind::kStats;
  event.address = totals.allocated;
  event.size = totals.requested;
  event.stream = totals.active;
  event.extra = totals.reserved;
  event.flags = static_cast<std::uint32_t>(cause);
  event.device = device;
  push(ring, event);
}

// Reads the totals and tells them, whatever they are.
void Recorder::tell(Ring* ring, DeviceIndex device, StatsCause cause) noexcept {
  const std::uint64_t place = ring->head();
  Totals totals;
  if (!read_totals(native_, device, totals)) return;
  const bool alone = !others_in_flight();
  const std::uint64_t pushed = push_differences_if_any(ring, device, totals);
  push_stats(ring, device, cause, totals);
  if (!alone || ring->head() != place + pushed + 1) want_resync(device);
}

void Recorder::tell_if_changed(Ring* ring, DeviceIndex device) noexcept {
  Told& told = told_[static_cast<std::size_t>(device)];
  const std::uint64_t place = ring->head();
  Totals totals;
  if (!read_totals(native_, device, totals)) return;
  const bool alone = !others_in_flight();
  if (totals.pending() != told.pending.load(std::memory_order_relaxed) ||
      totals.reserved != told.reserved.load(std::memory_order_relaxed)) {
    const std::uint64_t pushed = push_differences_if_any(ring, device, totals);
    push_stats(ring, device, StatsCause::kResync, totals);
    if (!alone || ring->head() != place + pushed + 1) want_resync(device);
  }
  if (totals.pending() == 0 && pending_blocks_.empty() &&
      !always_watch_.load(std::memory_order_relaxed)) {
    attention_.fetch_and(~watch_bit(device), std::memory_order_seq_cst);
    // stream_used remembers first and sets the bit then; so one of us two sees the other.
    if (!pending_blocks_.empty()) attention_.fetch_or(watch_bit(device), std::memory_order_seq_cst);
  }
}

void Recorder::want_resync(DeviceIndex device) noexcept {
  Bits bits = 0;
  for (int of = 0; of < capture::kMaxDevices; ++of) {
    const bool chosen =
        device < 0 ? told_[static_cast<std::size_t>(of)].anything.load(std::memory_order_relaxed)
                   : of == device;
    if (chosen) bits |= resync_bit(of);
  }
  if ((bits & ~attention_.load(std::memory_order_relaxed)) != 0) {
    attention_.fetch_or(bits, std::memory_order_relaxed);
  }
}

}  // namespace gpumemtrace::hook
