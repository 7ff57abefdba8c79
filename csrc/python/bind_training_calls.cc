// What the functions around torch's own (gpumemtrace.capture.auto_phases) call in each training step:
// in the plain C API, one call at either end.
//
// None of these raises into a training loop. make_forward_watch() has been called.
#include <pybind11/pybind11.h>

#include <utility>

#include "capture/phase_stack.h"
#include "python/around.h"
#include "python/bindings.h"
#include "python/forward_watch.h"
#include "python/optimizer_steps.h"
#include "python/step_counter.h"

namespace py = pybind11;

namespace gpumemtrace::python {
namespace {

using capture::PhaseStack;
using capture::Work;

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

long begin_backward() noexcept {
  if (is_in_autograd() || !begin(Work::kBackward)) return 0;
  StepCounter::instance().count_backward();
  return watch().disarm() ? 1 : 2;
}

void end_backward(long begun) noexcept {
  end(Work::kBackward);
  watch().release(begun == 1);
}

long begin_data() noexcept {
  if (!begin(Work::kData)) return 0;
  watch().leave_forward();  // left by a KeyboardInterrupt
  return 1;
}

void end_data(long) noexcept {
  end(Work::kData);
  watch().rearm();
}

PyObject* begin_zero_grad(PyObject*, PyObject*) {
  return PyBool_FromLong(begin(Work::kZeroGrad) ? 1 : 0);
}

PyObject* end_zero_grad(PyObject*, PyObject*) {
  end(Work::kZeroGrad);
  watch().rearm();
  Py_RETURN_NONE;
}

// --- step() of an optimizer

// What end_optimizer() returns, added up; the mirror is in auto_phases.py.
constexpr long kStepped = 1;
constexpr long kHasNews = 2;
constexpr long kBegun = 4;

// The closure that step(self, closure=None) was called with.
bool has_closure(PyObject* args, PyObject* keywords) {
  PyObject* closure = nullptr;
  if (PyTuple_Check(args) != 0 && PyTuple_GET_SIZE(args) > 1) {
    closure = PyTuple_GET_ITEM(args, 1);
  } else if (PyDict_Check(keywords) != 0 && PyDict_GET_SIZE(keywords) > 0) {
    closure = PyDict_GetItemString(keywords, "closure");
  }
  return closure != nullptr && closure != Py_None;
}

// (optimizer, args, kwargs), as torch calls hooks -> whether it has news.
PyObject* begin_optimizer(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (count != 3) Py_RETURN_FALSE;
  const Work work = has_closure(args[1], args[2]) ? Work::kOptimizerWithClosure : Work::kOptimizer;
  // Within a backward (one optimizer a parameter), in autograd's thread: no phase.
  const bool begun = !is_in_autograd() && begin(work);
  bool news = false;
  try {
    news = optimizer_steps().begin(args[0], begun);
  } catch (...) {
  }
  return PyBool_FromLong(news ? 1 : 0);
}

void leave() noexcept {
  end(Work::kOptimizer);
  watch().rearm();
}

PyObject* end_optimizer(PyObject*, PyObject* optimizer) {
  long told = 0;
  try {
    const auto [place, step] = optimizer_steps().end(optimizer);
    if (place != OptimizerSteps::Place::kNone) {
      const bool is_outer = place == OptimizerSteps::Place::kOuter;
      // Before the phase that follows is entered: that one belongs to the next step.
      const bool passes = is_outer && !step.news && StepCounter::instance().pass(optimizer);
      if (passes && step.begun) leave();
      if (!passes) {
        told = (is_outer ? kStepped : 0) | (step.news ? kHasNews : 0) | (step.begun ? kBegun : 0);
      }
    }
  } catch (...) {
  }
  return PyLong_FromLong(told);
}

PyObject* leave_optimizer(PyObject*, PyObject*) {
  leave();
  Py_RETURN_NONE;
}

PyMethodDef functions[] = {
    {"begin_zero_grad", begin_zero_grad, METH_NOARGS, "begin_zero_grad() -> bool"},
    {"end_zero_grad", end_zero_grad, METH_NOARGS, "end_zero_grad() -> None"},
    {"begin_optimizer",
     reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(begin_optimizer)), METH_FASTCALL,
     "begin_optimizer(optimizer, args, kwargs) -> bool\n\nWhether this step has news."},
    {"end_optimizer", end_optimizer, METH_O,
     "end_optimizer(optimizer) -> int\n\n0: there is no more to do. Else the flags of "
     "auto_phases."},
    {"leave_optimizer", leave_optimizer, METH_NOARGS,
     "leave_optimizer() -> None\n\nThe phase of a step that had begun one is over."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

void register_training_calls(py::module_& module) {
  if (PyModule_AddFunctions(module.ptr(), functions) != 0) throw py::error_already_set();
  module.def(
      "around_backward",
      [](py::object original) {
        return make_around(std::move(original), {&begin_backward, &end_backward});
      },
      py::arg("original"));
  module.def(
      "around_next",
      [](py::object original) {
        return make_around(std::move(original), {&begin_data, &end_data});
      },
      py::arg("original"));
  module.def(
      "forget_optimizers", [] { optimizer_steps().clear(); }, "A session begins.");
}

}  // namespace gpumemtrace::python
