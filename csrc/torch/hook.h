// The one hook of a process: which allocator it stands in front of, and how it gets there.
#pragma once

#include <memory>
#include <string>

#include "torch/recorder.h"
#include "torch/tracing_allocator.h"

namespace gpumemtrace::hook {

// Made on first use and never destroyed: torch may free memory after every destructor has run.
class Hook {
 public:
  // Throws std::runtime_error when the allocator found at load time was not torch's own.
  static Hook& instance();

  CUDAAllocator& native() const noexcept { return native_; }
  Recorder& recorder() noexcept { return recorder_; }
  const std::shared_ptr<TracingAllocator>& allocator() const noexcept { return allocator_; }

  bool is_current() const noexcept;
  // Blocks handed out by the native allocator and not yet given back, over all devices.
  std::uint64_t live_blocks() const;

  // Puts the tracing allocator in torch's place for it though CUDA is up, which
  // torch.cuda.memory.change_current_allocator refuses. Only right while nothing is handed out: a
  // block's deleter stays what it was when the block was made. Throws std::runtime_error otherwise.
  void swap_in_late();

 private:
  explicit Hook(CUDAAllocator& native);

  CUDAAllocator& native_;
  Recorder recorder_;
  std::shared_ptr<TracingAllocator> allocator_;
};

// Names what torch allocates with now: "tracing" (this hook), "native", "cudaMallocAsync", or what
// another allocator calls itself ("pluggable" for torch.cuda.memory.CUDAPluggableAllocator).
std::string current_allocator();

}  // namespace gpumemtrace::hook
