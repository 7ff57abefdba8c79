// What gpumemtrace.capture.steps asks for.
#include <pybind11/pybind11.h>

#include <cstdint>

#include "python/bindings.h"
#include "python/step_counter.h"

namespace py = pybind11;

namespace gpumemtrace::python {

void register_steps(py::module_& module) {
  module.def("begin_steps", [] { StepCounter::instance().begin_session(); });
  module.def(
      "begin_step",
      [](std::uint64_t number, std::uint32_t flags) {
        StepCounter::instance().begin_step(number, flags);
      },
      py::arg("number"), py::arg("flags"));
  module.def(
      "let_steps_pass",
      [](const py::object& optimizer, std::uint64_t steps) {
        StepCounter::instance().let_pass(optimizer.is_none() ? nullptr : optimizer.ptr(), steps);
      },
      py::arg("optimizer"), py::arg("steps"));
  module.def("step_number", [] { return StepCounter::instance().number(); });
  module.def("steps_begun", [] { return StepCounter::instance().begun(); });
  module.def(
      "steps_by_backwards",
      [] {
        py::dict found;
        for (const auto& [backwards, steps] : StepCounter::instance().by_backwards()) {
          found[py::int_(backwards)] = steps;
        }
        return found;
      },
      "Number of backwards in a step -> in how many steps.");
}

}  // namespace gpumemtrace::python
