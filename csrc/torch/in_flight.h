// Which threads are between the native allocator and the ring, so that a reading of the allocator's
// totals can be trusted.
//
// A thread reads the totals, then pushes an event that carries them. The reader of the trace takes
// them as true at that place; so every operation counted in them must come before that place, and no
// other. Other threads can break this, and no lock of ours is to stop them:
//
//   X (reads)  |--- native call ---| reading |-- push |
//   Y                      |- alloc is done ---------------------- push |    counted, but comes later
//   Y          push kFree | ------------------- the block goes back |        comes earlier, not counted
//   Y                                         | alloc, push |                comes earlier, not counted
//
// Where nothing is read and the reader infers a block from the blocks around it, there is a fourth:
//
//   X                              |--- native call ---| push |
//   Y          push kFree | ------------------------------ the block goes back |    not yet, for X
//
// so X also looks before its native call; Y set its flag before its event was in the ring.
//
// Each thread says in a flag of its own that it is at work: in the first two cases X finds Y's flag
// set after its reading (Y set it before it took the allocator's lock, which X took later). In the
// third X finds, after its push, that the ring's head has moved by more than its own events. X then
// knows, and asks for another reading; a single-threaded program pays two plain stores.
#pragma once

#include <atomic>
#include <cstdint>

#include "torch/allocation_notes.h"

namespace gpumemtrace::hook {

// One thread's flag; a line of its own, as its owner writes it twice in every operation.
struct alignas(64) InFlightSlot {
  std::atomic<bool> taken{false};  // by a thread that lives
  // release (leave) -> acquire (others_in_flight): its events are in the ring.
  std::atomic<bool> busy{false};
};

// Gives this thread a slot until it ends. Takes no lock.
InFlightSlot* acquire_slot() noexcept;

// Whether this thread found no slot, or is ending: others may use the same one.
bool is_slot_shared() noexcept;

// Is any other thread at work? Looks at each thread that has ever been, up to 64 at a time.
bool others_in_flight() noexcept;

// The same for those whose events lie before a head of the ring that was read just now. acquire:
// pairs with say_at_work.
inline bool others_began_before() noexcept {
  std::atomic_thread_fence(std::memory_order_acquire);
  return others_in_flight();
}

// Between enter() and a push that comes before the native call.
inline void say_at_work() noexcept { std::atomic_thread_fence(std::memory_order_release); }

// Around an operation: before the native allocator is called, and when all its events are pushed.
// True: this thread was at work already, in an operation that this one is a part of.
inline bool enter() noexcept {
  InFlightSlot* slot = t_notes.slot;
  if (slot == nullptr) [[unlikely]]
    slot = acquire_slot();
  const bool is_inner = slot->busy.load(std::memory_order_relaxed);
  slot->busy.store(true, std::memory_order_relaxed);
  return is_inner;
}
inline void leave() noexcept { t_notes.slot->busy.store(false, std::memory_order_release); }

// At the end of its scope.
struct Leaving {
  Leaving() = default;
  ~Leaving() { leave(); }
  Leaving(const Leaving&) = delete;
  Leaving& operator=(const Leaving&) = delete;
};

// Waits until every other thread has left the operation that it may be in. The caller has told them
// to begin no other one, by something that they read behind hold_order(). False: one did not come
// out in time, or can't be seen (more threads than slots, a kernel without membarrier(2)).
bool wait_for_others(std::uint64_t patience_ns) noexcept;

// Between enter() and the look at whether one may go on. No instruction: wait_for_others() has each
// core put its stores and loads in order, by membarrier(2), so that of the two sides one sees the
// other's.
inline void hold_order() noexcept { std::atomic_signal_fence(std::memory_order_seq_cst); }

}  // namespace gpumemtrace::hook
