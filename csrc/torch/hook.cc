#include "torch/hook.h"

#include <c10/cuda/CUDAFunctions.h>

#include <stdexcept>

#include "torch/block_streams.h"
#include "torch/device_memory.h"
#include "torch/device_table.h"

namespace gpumemtrace::hook {
namespace {

using Pluggable = torch::cuda::CUDAPluggableAllocator::CUDAPluggableAllocator;

CUDAAllocator* if_native(CUDAAllocator* allocator) {
  return dynamic_cast<Pluggable*>(allocator) == nullptr ? allocator : nullptr;
}

// At load time, since by the first call of a C entry point torch's stock wrapper stands in front.
// nullptr: somebody else's pluggable allocator was installed already.
CUDAAllocator* const g_native_at_load = if_native(c10::cuda::CUDACachingAllocator::get());

Hook* g_hook = nullptr;

// A session begins. Only while torch allocates through us can its blocks be followed from there on.
void open_session(Ring* ring, void (*activate)(Ring*) noexcept) noexcept {
  if (g_hook != nullptr && g_hook->is_current()) {
    g_hook->recorder().begin_session(ring, activate);
  } else {
    activate(ring);
  }
}

}  // namespace

// Lets changeCurrentAllocator pass its check "is the current allocator initialized?", which asks
// whichever allocator is current: for this moment ours, saying no. So torch does all that it does on
// a change, whatever that is in its version.
class LateSwap {
 public:
  explicit LateSwap(TracingAllocator& allocator) : allocator_(allocator) {
    allocator_.pretends_uninitialized_ = true;
  }
  ~LateSwap() { allocator_.pretends_uninitialized_ = false; }
  LateSwap(const LateSwap&) = delete;
  LateSwap& operator=(const LateSwap&) = delete;

 private:
  TracingAllocator& allocator_;
};

Hook::Hook(CUDAAllocator& native)
    : native_(native),
      recorder_(native),
      allocator_(std::make_shared<TracingAllocator>(native, recorder_)) {}

Hook& Hook::instance() {
  static Hook* const hook = [] {
    if (g_native_at_load == nullptr) {
      throw std::runtime_error(
          "gpumemtrace: another pluggable allocator was installed before gpumemtrace was loaded");
    }
    g_hook = new Hook(*g_native_at_load);
    capture::set_session_opener(&open_session);
    return g_hook;
  }();
  return *hook;
}

bool Hook::is_current() const noexcept {
  return c10::cuda::CUDACachingAllocator::get() == allocator_.get();
}

std::uint64_t Hook::live_blocks() const {
  std::uint64_t blocks = 0;
  if (!native_.initialized()) return blocks;
  for (c10::DeviceIndex device = 0; device < c10::cuda::device_count(); ++device) {
    Totals totals;
    if (read_totals(native_, device, totals)) blocks += totals.live_blocks;
  }
  return blocks;
}

void Hook::swap_in_late() {
  if (is_current()) return;
  if (c10::cuda::CUDACachingAllocator::get() != &native_) {
    throw std::runtime_error("torch does not use its own allocator any more");
  }
  if (live_blocks() != 0) throw std::runtime_error("device memory is handed out already");
  {
    const LateSwap swap(*allocator_);
    c10::cuda::CUDACachingAllocator::allocator.store(allocator_.get());
    torch::cuda::CUDAPluggableAllocator::changeCurrentAllocator(allocator_);
  }
  take_place_in_device_table(&native_, allocator_.get());
  if (native_.initialized()) {
    // Another thread may be in a miss that began before, of which nothing was noted.
    if (releases_lock_on_cudamalloc()) stop_following_streams();
    recorder_.initialized(c10::cuda::device_count());
    describe_devices(c10::cuda::device_count());
  }
}

std::string current_allocator() {
  CUDAAllocator* const current = c10::cuda::CUDACachingAllocator::get();
  if (g_hook != nullptr && g_hook->is_current()) return "tracing";
  return current->name();
}

}  // namespace gpumemtrace::hook
