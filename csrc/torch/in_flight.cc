#include "torch/in_flight.h"

#include <algorithm>
#include <array>

namespace gpumemtrace::hook {
namespace {

constinit std::array<InFlightSlot, 64> g_slots{};
constinit std::atomic<std::size_t> g_used{0};  // slots that were ever taken

// For threads that found no slot, and for what a thread frees while it ends.
constinit InFlightSlot g_shared_slot{};
constinit std::atomic<bool> g_crowded{false};  // more threads than slots: never sure again

// Runs when its thread ends.
struct SlotOwner {
  ~SlotOwner() {
    InFlightSlot* const slot = t_notes.slot;
    t_notes.slot = &g_shared_slot;
    slot->busy.store(false, std::memory_order_release);
    slot->taken.store(false, std::memory_order_release);
  }
};

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
      thread_local const SlotOwner owner;
      (void)owner;
      return &slot;
    }
  }
  g_crowded.store(true, std::memory_order_relaxed);
  t_notes.slot = &g_shared_slot;
  return &g_shared_slot;
}

bool others_in_flight() noexcept {
  const std::size_t used = std::min(g_used.load(std::memory_order_acquire), g_slots.size());
  const InFlightSlot* const mine = t_notes.slot;
  for (std::size_t i = 0; i < used; ++i) {
    if (&g_slots[i] != mine && g_slots[i].busy.load(std::memory_order_acquire)) return true;
  }
  return g_shared_slot.busy.load(std::memory_order_acquire) ||
         g_crowded.load(std::memory_order_relaxed);
}

}  // namespace gpumemtrace::hook
