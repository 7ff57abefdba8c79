// The module: a table of contents. Built with the pybind11 headers that torch ships, so that torch
// knows the allocator object as one of its own. gpumemtrace/capture/allocator.py is its only user.
#include <pybind11/pybind11.h>

#include "torch/hook.h"
#include "torch/pair_loop.h"

namespace hook = gpumemtrace::hook;

PYBIND11_MODULE(_torch_hook, module) {
  module.doc() = "The allocator hook: torch's native CUDA allocator, recorded.";
  module.def("make_allocator", []() -> std::shared_ptr<hook::CUDAAllocator> {
    return hook::Hook::instance().allocator();
  });
  module.def("current_allocator", &hook::current_allocator);
  module.def("is_initialized", [] { return hook::Hook::instance().native().initialized(); });
  module.def("live_blocks", [] { return hook::Hook::instance().live_blocks(); });
  module.def("swap_in_late", [] { hook::Hook::instance().swap_in_late(); });
  module.def("record_baseline", [] {
    if (auto* ring = gpumemtrace::capture::active_ring()) {
      hook::Hook::instance().recorder().tell_baseline(ring);
    }
  });
  module.def("time_pairs", &hook::time_pairs);
}
