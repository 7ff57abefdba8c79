#include "torch/bind_sites.h"

#include <pybind11/stl.h>

#include <cstdint>
#include <string>
#include <utility>

#include "capture/clock.h"
#include "capture/producer.h"
#include "capture/sites.h"
#include "torch/file_names.h"
#include "torch/module_calls.h"
#include "torch/python_lines.h"
#include "torch/python_stacks.h"
#include "torch/site_source.h"

namespace py = pybind11;

namespace gpumemtrace::hook {
namespace {

void start_modules(const py::type& module_type, py::object name) {
  ModuleCalls::instance().start(module_type, std::move(name));
  want_modules(true);
}

void stop_modules() {
  want_modules(false);
  ModuleCalls::instance().stop();
}

bool start_stacks(bool confidential) {
  PythonStacks::instance().set_confidential(confidential);
  if (!PythonStacks::instance().start()) return false;
  want_stacks(true);
  return true;
}

void stop_stacks() {
  want_stacks(false);
  PythonStacks::instance().stop();
}

// `calls` times what an allocation of `size_bytes` asks for: for measurements.
std::uint64_t time_sites(std::uint64_t size_bytes, std::size_t calls) {
  const std::uint64_t since_ns = capture::monotonic_ns();
  for (std::size_t call = 0; call < calls; ++call) capture::site_of(Kind::kAlloc, size_bytes);
  return capture::monotonic_ns() - since_ns;
}

// Of `path` within the outermost module of number `root` (0: it is one, by its name): its number and
// its site. 0 and 0: there are too many.
std::pair<std::uint32_t, std::uint32_t> define_module_site(std::uint32_t root,
                                                           const std::string& path) {
  capture::SiteTable& table = capture::site_table();
  const std::uint32_t number = table.define_module(root, path);
  return {number, table.define_site({number, 0, StackState::kOff})};
}

}  // namespace

void register_sites(py::module_& module) {
  module.def("start_modules", &start_modules);
  module.def("stop_modules", &stop_modules);
  module.def("modules_are_watched", [] { return ModuleCalls::instance().is_on(); });
  module.def("watch_type", [](const py::type& type) { ModuleCalls::instance().watch_type(type); });
  module.def("set_site", [](const py::object& of, std::uint32_t site) {
    ModuleCalls::instance().set_site(of, site);
  });
  module.def("begin_site", &ModuleCalls::begin);
  module.def("define_module_site", &define_module_site);

  // gpumemtrace/capture/call_sites.py
  module.def("start_stacks", &start_stacks);
  module.def("stop_stacks", &stop_stacks);
  module.def("take_stacks", &take_stacks);
  module.def("time_sites", &time_sites);
  module.def("without_folders", &without_folders);
  module.def("line_of", [](int first_line, const std::string& table, std::uint32_t instruction) {
    return line_of({{}, {}, table, first_line, nullptr}, instruction);
  });
}

}  // namespace gpumemtrace::hook
