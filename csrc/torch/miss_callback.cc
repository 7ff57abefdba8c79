// Notes when the cache has no block for an allocation.
//
// torch runs the registered callbacks exactly then: before it asks the driver, flushes, or gives up.
// So reserved memory changes in no other allocation, and the totals need to be read after these
// alone.
#include "capture/clock.h"
#include "torch/allocation_notes.h"
#include "torch/block_streams.h"
#include "torch/in_flight.h"
#include "torch/torch_compat.h"

namespace gpumemtrace::hook {

constinit thread_local AllocationNotes t_notes;

// What an inner allocation has noted is left to the outer one: it ends no change that is not its own,
// and from its totals nothing follows. Once streams are no longer followed, notes may be left of
// allocations past the hook, and nothing depends on whose they are.
void AllocationNotes::settle_some() noexcept {
  if (inner > 0 && are_streams_followed()) {
    --inner;
    has_before = false;
    return;
  }
  any = missed = unsure = has_before = false;
  inner = 0;
  for (; changes > 0; --changes) end_change();
}

namespace {

bool is_in_own_operation() noexcept {
  const InFlightSlot* const slot = t_notes.slot;
  return slot != nullptr && !is_slot_shared() && slot->busy.load(std::memory_order_relaxed);
}

// Runs under the device's allocator lock: takes no lock, allocates nothing, frees nothing.
class NoteMiss final : public c10::FreeMemoryCallback {
 public:
  // False: this callback has freed nothing.
  bool Execute() override {
    if (is_before_hook()) return false;
    t_notes.any = true;
    t_notes.missed = true;
    t_notes.missed_ns = capture::monotonic_ns();
    if (is_in_own_operation()) {
      begin_change();
      ++t_notes.changes;
    } else {
      stop_following_streams();
    }
    return false;
  }
};

}  // namespace
}  // namespace gpumemtrace::hook

namespace c10 {
REGISTER_FREE_MEMORY_CALLBACK("gpumemtrace_note_miss", gpumemtrace::hook::NoteMiss)
}
