#include "torch/bind_sites.h"

#include <pybind11/stl.h>

#include <cstdint>
#include <string>
#include <utility>

#include "capture/producer.h"
#include "capture/sites.h"
#include "torch/module_calls.h"
#include "torch/site_source.h"

namespace py = pybind11;

namespace gpumemtrace::hook {
namespace {

void start_modules(const py::type& module_type, py::object name) {
  ModuleCalls::instance().start(module_type, std::move(name));
  capture::g_site_source.store(&site_now, std::memory_order_release);
}

void stop_modules() {
  capture::g_site_source.store(nullptr, std::memory_order_release);
  ModuleCalls::instance().stop();
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
  module.def("watch_types", [] { ModuleCalls::instance().watch_types(false); });
  module.def("watch_type", [](const py::type& type) { ModuleCalls::instance().watch_type(type); });
  module.def("set_site", [](const py::object& of, std::uint32_t site) {
    ModuleCalls::instance().set_site(of, site);
  });
  module.def("begin_site", &ModuleCalls::begin);
  module.def("define_module_site", &define_module_site);
}

}  // namespace gpumemtrace::hook
