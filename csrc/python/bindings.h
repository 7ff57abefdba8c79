// One function per topic; module.cc calls each once.
#pragma once

#include <pybind11/pybind11.h>

namespace gpumemtrace::python {

void register_capture(pybind11::module_& module);
void register_compute(pybind11::module_& module);
void register_forward_watch(pybind11::module_& module);
void register_live_groups(pybind11::module_& module);
void register_line_gaps(pybind11::module_& module);
void register_phases(pybind11::module_& module);
void register_plain_pickle(pybind11::module_& module);
void register_recovery(pybind11::module_& module);
void register_retention(pybind11::module_& module);
void register_segments(pybind11::module_& module);
void register_steps(pybind11::module_& module);
void register_trace(pybind11::module_& module);
void register_training_calls(pybind11::module_& module);

}  // namespace gpumemtrace::python
