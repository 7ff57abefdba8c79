// Notes when the cache has no block for an allocation.
//
// torch runs the registered callbacks exactly then: before it asks the driver, flushes, or gives up.
// So reserved memory changes in no other allocation, and the totals need to be read after these
// alone.
#include "capture/clock.h"
#include "torch/allocation_notes.h"
#include "torch/torch_compat.h"

namespace gpumemtrace::hook {

constinit thread_local AllocationNotes t_notes;

namespace {

// Runs under the device's allocator lock: takes no lock, allocates nothing, frees nothing.
class NoteMiss final : public c10::FreeMemoryCallback {
 public:
  // False: this callback has freed nothing.
  bool Execute() override {
    t_notes.any = true;
    t_notes.missed = true;
    t_notes.missed_ns = capture::monotonic_ns();
    return false;
  }
};

}  // namespace
}  // namespace gpumemtrace::hook

namespace c10 {
REGISTER_FREE_MEMORY_CALLBACK("gpumemtrace_note_miss", gpumemtrace::hook::NoteMiss)
}
