// What the functions around torch's own (gpumemtrace.capture.auto_phases) call in each training step:
// in the plain C API, one call at either end.
//
// None of these raises into a training loop. make_forward_watch() has been called.
#include <pybind11/pybind11.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "capture/phase_stack.h"
#include "python/bindings.h"
#include "python/forward_watch.h"
#include "python/optimizer_steps.h"

namespace py = pybind11;

namespace gpumemtrace::python {
namespace {

using capture::PhaseStack;
using capture::Work;

// Different numbers of backwards in a step that are counted.
constexpr std::size_t kMostCounts = 64;

// Under the GIL; of the session.
struct Counts {
  std::uint64_t backwards = 0;  // in this step
  // Number of backwards, and of steps that had so many; first seen first.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> steps;
};
Counts& counts() {
  static auto* counts = new Counts;
  return *counts;
}

OptimizerSteps& optimizer_steps() {
  static auto* steps = new OptimizerSteps;  // leaked: it holds references to the end
  return *steps;
}

ForwardWatch& watch() { return *ForwardWatch::instance(); }

bool begin(Work work) noexcept {
  try {
    return PhaseStack::of_this_thread().begin(work);
  } catch (...) {
    return false;
  }
}

void end(Work work) noexcept {
  try {
    PhaseStack::of_this_thread().end(work);
  } catch (...) {
  }
}

// A node of autograd's runs here: a backward within a backward, perhaps in a thread of autograd's,
// which must not get a phase of its own (reentrant checkpointing).
bool is_in_autograd() noexcept {
  try {
    return watch().is_in_autograd();
  } catch (...) {
    return false;
  }
}

// --- 0: it is part of what goes on; then the end_ function is not to be called

PyObject* begin_backward(PyObject*, PyObject*) {
  if (is_in_autograd() || !begin(Work::kBackward)) return PyLong_FromLong(0);
  ++counts().backwards;
  return PyLong_FromLong(watch().disarm() ? 1 : 2);
}

PyObject* end_backward(PyObject*, PyObject* begun) {
  end(Work::kBackward);
  watch().release(PyLong_AsLong(begun) == 1);
  Py_RETURN_NONE;
}

PyObject* begin_zero_grad(PyObject*, PyObject*) {
  return PyBool_FromLong(begin(Work::kZeroGrad) ? 1 : 0);
}

PyObject* end_zero_grad(PyObject*, PyObject*) {
  end(Work::kZeroGrad);
  watch().rearm();
  Py_RETURN_NONE;
}

PyObject* begin_data(PyObject*, PyObject*) {
  if (!begin(Work::kData)) Py_RETURN_FALSE;
  watch().leave_forward();  // left by a KeyboardInterrupt
  Py_RETURN_TRUE;
}

PyObject* end_data(PyObject*, PyObject*) {
  end(Work::kData);
  watch().rearm();
  Py_RETURN_NONE;
}

// --- step() of an optimizer

// What end_optimizer() returns, added up; the mirror is in auto_phases.py.
constexpr long kStepped = 1;
constexpr long kHasNews = 2;
constexpr long kBegun = 4;

// (optimizer, has_closure) -> whether it has news.
PyObject* begin_optimizer(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (count != 2) Py_RETURN_FALSE;
  const bool has_closure = args[1] == Py_True;
  // Within a backward (one optimizer a parameter), in autograd's thread: no phase.
  const bool begun =
      !is_in_autograd() && begin(has_closure ? Work::kOptimizerWithClosure : Work::kOptimizer);
  bool news = false;
  try {
    news = optimizer_steps().begin(args[0], begun);
  } catch (...) {
  }
  return PyBool_FromLong(news ? 1 : 0);
}

PyObject* end_optimizer(PyObject*, PyObject* optimizer) {
  long told = 0;
  try {
    const auto [place, step] = optimizer_steps().end(optimizer);
    if (place != OptimizerSteps::Place::kNone) {
      told = (place == OptimizerSteps::Place::kOuter ? kStepped : 0) | (step.news ? kHasNews : 0) |
             (step.begun ? kBegun : 0);
    }
  } catch (...) {
  }
  return PyLong_FromLong(told);
}

PyObject* leave_optimizer(PyObject*, PyObject*) {
  end(Work::kOptimizer);
  watch().rearm();
  Py_RETURN_NONE;
}

// --- counting, for the run record

PyObject* count_step(PyObject*, PyObject*) {
  auto& [backwards, steps] = counts();
  const auto known = std::find_if(
      steps.begin(), steps.end(),
      [&backwards = backwards](const auto& count) { return count.first == backwards; });
  if (known != steps.end()) {
    ++known->second;
  } else if (steps.size() < kMostCounts) {
    steps.emplace_back(backwards, 1);
  }
  backwards = 0;
  Py_RETURN_NONE;
}

PyMethodDef functions[] = {
    {"begin_backward", begin_backward, METH_NOARGS,
     "begin_backward() -> int\n\nFalse (0), or what end_backward is to be given."},
    {"end_backward", end_backward, METH_O, "end_backward(begun: int) -> None"},
    {"begin_zero_grad", begin_zero_grad, METH_NOARGS, "begin_zero_grad() -> bool"},
    {"end_zero_grad", end_zero_grad, METH_NOARGS, "end_zero_grad() -> None"},
    {"begin_data", begin_data, METH_NOARGS, "begin_data() -> bool"},
    {"end_data", end_data, METH_NOARGS, "end_data() -> None"},
    {"begin_optimizer",
     reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(begin_optimizer)), METH_FASTCALL,
     "begin_optimizer(optimizer, has_closure) -> bool\n\nWhether this step has news."},
    {"end_optimizer", end_optimizer, METH_O,
     "end_optimizer(optimizer) -> int\n\nThe flags of auto_phases."},
    {"leave_optimizer", leave_optimizer, METH_NOARGS,
     "leave_optimizer() -> None\n\nThe phase of a step that had begun one is over."},
    {"count_step", count_step, METH_NOARGS, "count_step() -> None\n\nA step has ended."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

void register_training_calls(py::module_& module) {
  if (PyModule_AddFunctions(module.ptr(), functions) != 0) throw py::error_already_set();
  module.def(
      "begin_counting",
      [] {
        optimizer_steps().clear();
        counts() = {};
      },
      "A session begins.");
  module.def(
      "steps_by_backwards",
      [] {
        py::dict found;
        for (const auto& [backwards, steps] : counts().steps) found[py::int_(backwards)] = steps;
        return found;
      },
      "Number of backwards in a step -> in how many steps.");
}

}  // namespace gpumemtrace::python
