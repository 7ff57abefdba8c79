// Turns what the allocator does into events.
//
// Called by TracingAllocator and by the C entry points, around the native allocator:
//
//   const auto [ring, attention] = recorder.arrive();
//   const std::uint64_t begin = recorder.begin(ring, attention, size);
//   block = native.allocate(size);
//   recorder.allocated(ring, begin, block, size, device, stream);
//
// In steady state an event costs a clock reading and a push. The allocator's own totals are read
// only where events alone can't tell them:
//   - after a cache miss: reserved memory changes in no other allocation. Where it then isn't what
//     the segments told of add up to (memory went back to the driver), and while a private pool is
//     open, a snapshot says which segments there are;
//   - for a request above 1 MiB whose block a reader can't tell: it may be larger than the request
//     rounded up to 512 bytes (a remainder of up to 1 MiB is not split off), so the event carries the
//     device's allocated bytes. A reader can tell it from the segments and the blocks in them
//     (segment_knowledge.h), except where threads meet, blocks wait for another stream, events were
//     lost, or settings say how blocks are split; and for every request where rounding is configured
//     or a pool never splits;
//   - while blocks given back are still in use on another stream: active memory then falls later,
//     in some other call;
//   - after events were lost, and where threads met (see in_flight.h).
//
// Nothing here throws, waits for another thread's allocation, or calls back into torch with a lock
// held. One instance a process, never destroyed.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "capture/producer.h"
#include "torch/allocation_notes.h"
#include "torch/block_set.h"
#include "torch/block_snapshot.h"
#include "torch/in_flight.h"
#include "torch/segment_knowledge.h"
#include "torch/segment_table.h"
#include "torch/torch_compat.h"
#include "torch/totals.h"

namespace gpumemtrace::hook {

using capture::Ring;

class Recorder {
 public:
  using DeviceIndex = c10::DeviceIndex;

  explicit Recorder(CUDAAllocator& native) noexcept : native_(native) {}

  // --- around every allocation and free ---

  // This thread is at work from here on, until one of allocated(), failed(), freed(), abandoned(), or
  // leave() (in_flight.h). The ring that it records in meanwhile; nullptr while no session does. The
  // blocks that a session begins with and its events join without a seam, since no operation is
  // under way when it begins: this waits for that moment to pass.
  struct Arrival {
    Ring* ring;
    std::uint64_t attention;  // for begin() or freeing()
  };
  Arrival arrive() noexcept;

  // How far the ring is. Just before the native allocator is called; either allocated() or failed()
  // must follow, or abandoned() where it threw something else or `ring` is nullptr.
  std::uint64_t begin(Ring* ring, std::uint64_t attention, std::size_t size) noexcept;
  // After it has served the request, in the same thread.
  void allocated(Ring* ring, std::uint64_t begin, const void* block, std::size_t size,
                 DeviceIndex device, cudaStream_t stream) noexcept;
  // After it threw OutOfMemoryError; call it in the handler, then rethrow.
  void failed(Ring* ring, std::size_t size, DeviceIndex device, cudaStream_t stream) noexcept;

  // Nothing was handed out, or nothing that is ours to record; or no session records.
  void abandoned() noexcept;

  // Before a block goes back, and after.
  std::uint64_t freeing(Ring* ring, std::uint64_t attention,
                        const void* block) noexcept;  // `begin`
  void freed(Ring* ring, std::uint64_t begin) noexcept;

  // Before a block goes back while no session records: keeps what must be known when one begins.
  void freeing_unrecorded(const void* block) noexcept;

  // --- rare calls; `ring` is nullptr while no session records ---

  // The allocator is set up. Takes its settings into account.
  void initialized(int device_count) noexcept;
  // Where a session begins: makes its ring the one that records and, when memory is in use, tells
  // the blocks handed out, as if it were now, the segments, and the totals of each device. Other
  // threads' operations stand still meanwhile, as long as a snapshot takes; where one can't be
  // waited for (100 ms), the blocks remain untold, and a kGap of no events says so.
  void begin_session(Ring* ring, void (*activate)(Ring*) noexcept) noexcept;
  void stream_used(Ring* ring, const void* block, DeviceIndex device, cudaStream_t stream) noexcept;
  void cache_emptied(Ring* ring, std::uint64_t duration_ns) noexcept;
  // Anything else after which this device may have given memory back to the driver.
  void released(Ring* ring, DeviceIndex device) noexcept;
  void pool_event(Ring* ring, Kind kind, DeviceIndex device, MempoolId_t pool) noexcept;
  // A private pool was put back to an earlier state: what was freed, what is handed out now. From
  // then on torch counts the size of a whole block as requested.
  void pool_restored(Ring* ring, DeviceIndex device, const std::vector<void*>& freed,
                     const std::vector<KnownBlock>& created) noexcept;
  // From now on blocks may be larger than the request rounded up to 512 bytes.
  void distrust_rounding() noexcept { exact_up_to_.store(kDistrusted, std::memory_order_relaxed); }
  // Blocks are about to change in a way that events don't tell.
  void distrust_segments() noexcept { segments_.give_up(); }
  // torch's counters begin anew.
  void counters_reset(DeviceIndex device) noexcept;

 private:
  // Blocks of requests up to this size are always split: they are the request, rounded up.
  static constexpr std::size_t kSmallRequest = std::size_t{1} << 20;
  static constexpr std::size_t kDistrusted = 0;

  // What events alone can't tell, in `attention_`: each a wish, and one event late is no harm.
  // Devices beyond kMaxDevices are recorded without corrections.
  using Bits = std::uint64_t;
  static constexpr Bits resync_bit(int device) noexcept { return Bits{1} << device; }
  static constexpr Bits watch_bit(int device) noexcept { return Bits{0x1'0000} << device; }
  static constexpr Bits kResyncs = Bits{0xffff};       // resync_bit of some device
  static constexpr Bits kWatched = Bits{0xffff'0000};  // watch_bit of some device
  static constexpr Bits kUnsized = Bits{1} << 32;      // unsized_blocks_ isn't empty
  // A session begins: whoever arrives waits. seq_cst (begin_session) -> acquire (stand_aside).
  static constexpr Bits kHeld = Bits{1} << 33;
  static_assert(capture::kMaxDevices == 16);
  static bool is_known(int device) noexcept { return device >= 0 && device < capture::kMaxDevices; }

  // What the last kStats of a device said; relaxed: a stale value costs one more event.
  struct Told {
    std::atomic<bool> anything{false};
    std::atomic<std::uint64_t> pending{0};
    std::atomic<std::uint64_t> reserved{0};
    std::atomic<std::uint64_t> retries{0};
  };

  void stand_aside(bool is_inner) noexcept;
  bool tell_known_memory(Ring* ring) noexcept;
  void tell_baseline(Ring* ring, bool alone) noexcept;
  // After an operation's own event. `device` is -1 where it isn't known (a free).
  void finish(Ring* ring, std::uint64_t begin, DeviceIndex device) noexcept;
  bool large_needs_totals(const Ring* ring, std::uint64_t begin, DeviceIndex device) noexcept;
  static Event alloc_event(const void* block, std::size_t size, DeviceIndex device,
                           cudaStream_t stream) noexcept;
  // The same as allocated(), for what is not a cached block of a size that a reader can tell. Out of
  // line, and given the event's parts: there an event whose address nobody takes stays in registers.
  void allocated_with_care(Ring* ring, std::uint64_t begin, const void* block, std::size_t size,
                           DeviceIndex device, cudaStream_t stream) noexcept;
  void leave_unsized(const void* block) noexcept;
  void forget(const void* block) noexcept;
  bool needs_correction(const Ring* ring, DeviceIndex device) const noexcept;
  bool resync_pending(const Ring* ring, DeviceIndex device) const noexcept;
  void tell_resyncs(Ring* ring) noexcept;
  void correct(Ring* ring, DeviceIndex device, bool alone) noexcept;
  std::uint64_t begin_with_care(Ring* ring, std::size_t size) noexcept;
  void note_totals_before() noexcept;
  bool block_may_be_larger(std::size_t size) noexcept;
  SegmentKnowledge::State knowledge_of(const BlockSnapshot& memory) const noexcept;
  void allocated_with_totals(Ring* ring, std::uint64_t begin, Event& event) noexcept;
  void push_block(Ring* ring, const KnownBlock& block, std::uint64_t allocated) noexcept;
  void push_known_memory(Ring* ring, const BlockSnapshot& memory) noexcept;
  bool push_if_pending_changed(Ring* ring, const Totals& before, const Event& request,
                               const Totals& after) noexcept;
  // These return how many events they pushed: where the ring has moved by more, threads met.
  std::uint64_t after_miss(Ring* ring, const Event& request, const void* block,
                           const Totals& totals) noexcept;
  std::uint64_t push_segments(Ring* ring, const Event& request, const void* block,
                              const Totals& totals, std::uint64_t duration_ns) noexcept;
  std::uint64_t push_segment(Ring* ring, const Event& request, const void* block,
                             const Totals& totals, std::uint64_t duration_ns) noexcept;
  bool push_differences(Ring* ring, DeviceIndex device, std::uint64_t& pushed) noexcept;
  std::uint64_t push_differences_if_any(Ring* ring, DeviceIndex device,
                                        const Totals& totals) noexcept;
  std::uint64_t push_pool_of(Ring* ring, const KnownSegment& segment) noexcept;
  void push_stats(Ring* ring, DeviceIndex device, StatsCause cause, const Totals& totals) noexcept;
  void tell(Ring* ring, DeviceIndex device, StatsCause cause) noexcept;
  void tell_if_changed(Ring* ring, DeviceIndex device) noexcept;
  void want_resync(DeviceIndex device) noexcept;

  CUDAAllocator& native_;
  std::atomic<int> device_count_{0};

  // Read by every event, written rarely.
  alignas(128) std::atomic<Bits> attention_{0};
  std::atomic<std::size_t> exact_up_to_{kSmallRequest};
  SegmentKnowledge segments_;

  alignas(128) std::array<Told, capture::kMaxDevices> told_{};
  // Used by another stream too: given back, their memory stays active until that stream is done.
  BlockSet pending_blocks_;
  SegmentTable told_segments_;
  std::atomic<int> open_pools_{0};
  // Made where threads met, so perhaps larger than the trace can tell.
  BlockSet unsized_blocks_;
  // An allocator backend that tells nothing of its misses.
  std::atomic<bool> always_watch_{false};
};

inline bool Recorder::needs_correction(const Ring* ring, DeviceIndex device) const noexcept {
  return attention_.load(std::memory_order_relaxed) != 0 ||
         (device >= 0 && (ring->resync_wanted(device) || ring->resync_wanted(-1)));
}

inline Event Recorder::alloc_event(const void* block, std::size_t size, DeviceIndex device,
                                   cudaStream_t stream) noexcept {
  Event event{};
  event.kind = Kind::kAlloc;
  event.address = reinterpret_cast<std::uintptr_t>(block);
  event.size = size;
  event.stream = reinterpret_cast<std::uintptr_t>(stream);
  event.device = device;
  event.site = capture::site_of(Kind::kAlloc, size);
  return event;
}

inline void Recorder::finish(Ring* ring, std::uint64_t begin, DeviceIndex device) noexcept {
  if (needs_correction(ring, device)) [[unlikely]]
    correct(ring, device, ring->head() == begin + 1);
  leave();
}

inline Recorder::Arrival Recorder::arrive() noexcept {
  const bool is_inner = enter();
  hold_order();
  const Bits attention = attention_.load(std::memory_order_relaxed);
  if ((attention & kHeld) != 0) [[unlikely]]
    stand_aside(is_inner);
  return {capture::active_ring(), attention};
}

inline std::uint64_t Recorder::begin(Ring* ring, std::uint64_t attention,
                                     std::size_t size) noexcept {
  if (t_notes.any) [[unlikely]]
    ++t_notes.inner;
  if (ring == nullptr) [[unlikely]]
    return 0;
  if ((attention & ~kUnsized) != 0) [[unlikely]] {
    return begin_with_care(ring, size);
  }
  const std::uint64_t head = ring->head();
  if (size > kSmallRequest && others_began_before()) [[unlikely]]
    t_notes.any = t_notes.unsure = true;
  return head;
}

inline void Recorder::allocated(Ring* ring, std::uint64_t begin, const void* block,
                                std::size_t size, DeviceIndex device,
                                cudaStream_t stream) noexcept {
  if (t_notes.any || size > exact_up_to_.load(std::memory_order_relaxed)) [[unlikely]] {
    allocated_with_care(ring, begin, block, size, device, stream);
    return;
  }
  Event event = alloc_event(block, size, device, stream);
  capture::push(ring, event);
  finish(ring, begin, device);
}

inline std::uint64_t Recorder::freeing(Ring* ring, std::uint64_t attention,
                                       const void* block) noexcept {
  Event event{};
  event.kind = Kind::kFree;
  event.address = reinterpret_cast<std::uintptr_t>(block);
  event.device = -1;
  event.site = capture::site_of(Kind::kFree, 0);
  if (attention != 0) [[unlikely]]
    forget(block);
  const std::uint64_t begin = ring->head();
  say_at_work();
  capture::push(ring, event);
  return begin;
}

inline void Recorder::abandoned() noexcept {
  t_notes.settle();
  leave();
}

inline void Recorder::freed(Ring* ring, std::uint64_t begin) noexcept { finish(ring, begin, -1); }

inline void Recorder::freeing_unrecorded(const void* block) noexcept {
  if (attention_.load(std::memory_order_relaxed) != 0) [[unlikely]]
    forget(block);
}

}  // namespace gpumemtrace::hook
