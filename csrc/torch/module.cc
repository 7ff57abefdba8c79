// The module: a table of contents. Built with the pybind11 headers that torch ships, so that torch
// knows the allocator object as one of its own. gpumemtrace/capture/allocator.py is its only user.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <optional>

#include "torch/bind_sites.h"
#include "torch/hook.h"
#include "torch/pair_loop.h"

namespace hook = gpumemtrace::hook;
namespace py = pybind11;

PYBIND11_MODULE(_torch_hook, module) {
  module.doc() = "The allocator hook: torch's native CUDA allocator, recorded.";
  module.def("make_allocator", []() -> std::shared_ptr<hook::CUDAAllocator> {
    return hook::Hook::instance().allocator();
  });
  module.def("current_allocator", &hook::current_allocator);
  module.def("is_initialized", [] { return hook::Hook::instance().native().initialized(); });
  module.def("live_blocks", [] { return hook::Hook::instance().live_blocks(); });
  module.def("swap_in_late", [] { hook::Hook::instance().swap_in_late(); });
  hook::register_sites(module);
  const auto through = [](bool through_hook) {
    return through_hook ? hook::Through::kCurrent : hook::Through::kNative;
  };
  module.def(
      "time_pairs",
      [through](std::size_t size_bytes, std::size_t pairs, int threads, bool through_hook) {
        // PyTorch's recorder may ask for the interpreter in each of the threads (2.6).
        std::optional<py::gil_scoped_release> released;
        if (threads > 1) released.emplace();
        return hook::time_pairs(size_bytes, pairs, threads, through(through_hook));
      },
      py::arg("size_bytes"), py::arg("pairs"), py::arg("threads") = 1, py::kw_only(),
      py::arg("through_hook") = true);
  module.def(
      "time_each_pair",
      [through](std::size_t size_bytes, std::size_t pairs, bool through_hook) {
        return hook::time_each_pair(size_bytes, pairs, through(through_hook));
      },
      py::arg("size_bytes"), py::arg("pairs"), py::kw_only(), py::arg("through_hook") = true);
}
