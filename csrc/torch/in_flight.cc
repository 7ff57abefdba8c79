#include "torch/in_flight.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "capture/clock.h"
#include "torch/block_streams.h"

namespace gpumemtrace::hook {
namespace {

constinit std::array<InFlightSlot, kInFlightSlots> g_slots{};
constinit std::atomic<std::size_t> g_used{0};  // slots that were ever taken

// For threads that found no slot, and for what a thread frees while it ends.
constinit InFlightSlot g_shared_slot{};
constinit std::atomic<bool> g_crowded{false};  // more threads than slots: never sure again

// Runs when its thread ends.
struct SlotOwner {
  ~SlotOwner() {
    InFlightSlot* const slot = t_notes.slot;
    t_notes.slot = &g_shared_slot;
    t_notes.streams = no_stream_ranges();
    slot->busy.store(false, std::memory_order_release);
    slot->taken.store(false, std::memory_order_release);
  }
};

// Every other thread of this process passes a full barrier meanwhile.
bool order_all_threads() noexcept {
  return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0 &&
         syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0;
}

}  // namespace

InFlightSlot* acquire_slot() noexcept {
  for (std::size_t i = 0; i < g_slots.size(); ++i) {
    InFlightSlot& slot = g_slots[i];
    if (!slot.taken.load(std::memory_order_relaxed) &&
        !slot.taken.exchange(true, std::memory_order_acquire)) {
      std::size_t used = g_used.load(std::memory_order_relaxed);
      while (used <= i && !g_used.compare_exchange_weak(used, i + 1, std::memory_order_seq_cst)) {
      }
      t_notes.slot = &slot;
      t_notes.streams = stream_ranges_of(i);
      thread_local const SlotOwner owner;
      (void)owner;
      return &slot;
    }
  }
  g_crowded.store(true, std::memory_order_relaxed);
  t_notes.slot = &g_shared_slot;
  t_notes.streams = no_stream_ranges();
  return &g_shared_slot;
}

bool is_slot_shared() noexcept { return t_notes.slot == &g_shared_slot; }

bool others_in_flight() noexcept {
  const std::size_t used = std::min(g_used.load(std::memory_order_acquire), g_slots.size());
  const InFlightSlot* const mine = t_notes.slot;
  for (std::size_t i = 0; i < used; ++i) {
    if (&g_slots[i] != mine && g_slots[i].busy.load(std::memory_order_acquire)) return true;
  }
  return g_shared_slot.busy.load(std::memory_order_acquire) ||
         g_crowded.load(std::memory_order_relaxed);
}

bool wait_for_others(std::uint64_t patience_ns) noexcept {
  if (!order_all_threads()) return false;
  const std::uint64_t ends_ns = capture::monotonic_ns() + patience_ns;
  while (others_in_flight()) {
    if (capture::monotonic_ns() > ends_ns) return false;
    const timespec moment{0, 20'000};
    nanosleep(&moment, nullptr);
  }
  return true;
}

}  // namespace gpumemtrace::hook
