// Who made what, as functions of _torch_hook: gpumemtrace/capture/modules.py and call_sites.py use them.
#pragma once

#include <pybind11/pybind11.h>

namespace gpumemtrace::hook {

void register_sites(pybind11::module_& module);

}  // namespace gpumemtrace::hook
