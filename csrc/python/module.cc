// The Python module: a table of contents. One bind_*.cc per topic, declared in bindings.h.
#include <pybind11/pybind11.h>

#include "python/bindings.h"

PYBIND11_MODULE(_core, module) {
  module.doc() = "Native core of gpumemtrace: trace files, the capture session, compute loops.";
  gpumemtrace::python::register_capture(module);
  gpumemtrace::python::register_compute(module);
  gpumemtrace::python::register_forward_watch(module);
  gpumemtrace::python::register_live_groups(module);
  gpumemtrace::python::register_line_gaps(module);
  gpumemtrace::python::register_phases(module);
  gpumemtrace::python::register_plain_pickle(module);
  gpumemtrace::python::register_recovery(module);
  gpumemtrace::python::register_retention(module);
  gpumemtrace::python::register_segments(module);
  gpumemtrace::python::register_steps(module);
  gpumemtrace::python::register_trace(module);
  gpumemtrace::python::register_training_calls(module);
}
