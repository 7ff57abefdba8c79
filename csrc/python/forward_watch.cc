#include "python/forward_watch.h"

#include <algorithm>
#include <utility>

#include "capture/phase_stack.h"

namespace py = pybind11;

namespace gpumemtrace::python {
namespace {

using capture::PhaseStack;
using capture::Work;

// A script that calls the parts of its model one by one has as many outermost modules as parts.
// After this many different ones without a change of phase there is no more to learn until the next
// change; and once that has happened, such a script gets fewer.
constexpr std::size_t kMostModules = 16;
constexpr std::size_t kMostModulesAfterACrowd = 2;
constexpr std::size_t kMostRoots = 64;
// While no outermost module has run: it may be of a class that nobody told of.
constexpr int kMostSearches = 4;

bool is_empty(const py::object& dict) {
  return PyDict_Check(dict.ptr()) != 0 && PyDict_GET_SIZE(dict.ptr()) == 0;
}

// An attribute of the module's own, past torch's __getattr__ where that can be.
py::object attribute(const py::handle& module, const py::handle& name) {
  PyObject* const found = PyObject_GenericGetAttr(module.ptr(), name.ptr());
  if (found != nullptr) return py::reinterpret_steal<py::object>(found);
  PyErr_Clear();
  return py::getattr(module, name);
}

// In C where it is a dictionary, as always but in TorchScript: Python code run here is compiled, when
// the caller is.
py::list values_of(const py::object& mapping) {
  PyObject* const values = PyMapping_Values(mapping.ptr());
  if (values == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::list>(values);
}

template <typename T>
bool contains(const std::vector<T>& values, const T& value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

// Less than half of what pybind11's call takes.
py::object call_without_arguments(const py::object& function) {
  PyObject* const result = PyObject_CallNoArgs(function.ptr());
  if (result == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(result);
}

}  // namespace

ForwardWatch* ForwardWatch::instance_ = nullptr;

void ForwardWatch::make(Torch torch) {
  if (instance_ == nullptr) instance_ = new ForwardWatch(std::move(torch));
}

ForwardWatch::ForwardWatch(Torch torch)
    : torch_(std::move(torch)),
      types_(&ForwardWatch::call),
      shapes_(torch_.tensor),
      most_(kMostModules) {
  inside_.reserve(64);  // disarm() must not throw; more threads than that never train at once
}

void ForwardWatch::start() {
  on_ = true;
  searches_left_ = kMostSearches;
  rearm();
}

void ForwardWatch::stop() {
  on_ = false;
  armed_ = false;
  inside_.clear();
  roots_.clear();
  shapes_.clear();
}

void ForwardWatch::rearm() noexcept {
  try {
    look_at_types();
  } catch (...) {
  }
  seen_.clear();
  armed_ = on_ && inside_.empty();
}

void ForwardWatch::look_at_types() {
  types_.look();
  if (on_ && roots_.empty() && searches_left_ > 0) {
    --searches_left_;
    types_.look_everywhere();
  }
  for (const Root& root : roots_) types_.mend(reinterpret_cast<PyTypeObject*>(root.type.ptr()));
}

bool ForwardWatch::disarm() {
  armed_ = false;
  const unsigned long thread = PyThread_get_thread_ident();
  if (contains(inside_, thread)) return false;
  inside_.push_back(thread);
  return true;
}

void ForwardWatch::release(bool entered) {
  if (!entered) return;
  leave_forward();
  rearm();
}

void ForwardWatch::leave_forward() {
  if (inside_.empty()) return;
  const unsigned long thread = PyThread_get_thread_ident();
  inside_.erase(std::remove(inside_.begin(), inside_.end(), thread), inside_.end());
}

bool ForwardWatch::is_in_autograd() const {
  return !call_without_arguments(torch_.current_autograd_node).is_none();
}

py::list ForwardWatch::roots() const {
  py::list alive;
  for (const Root& root : roots_) {
    if (py::object module = root.weak(); !module.is_none()) alive.append(module);
  }
  return alive;
}

PyObject* ForwardWatch::call(PyObject* module, PyObject* args, PyObject* keywords) {
  ForwardWatch& watch = *instance_;
  if (!watch.armed_ || !watch.begin_quietly(module, args, keywords)) {
    return watch.types_.call_old(module, args, keywords);
  }
  PyObject* const result = watch.types_.call_old(module, args, keywords);
  watch.end_quietly(module, args, keywords);
  return result;
}

bool ForwardWatch::begin_quietly(PyObject* module, PyObject* args, PyObject* keywords) noexcept {
  try {
    return begin(module, args, keywords);
  } catch (...) {  // what pybind11 throws has taken Python's error with it
    return false;
  }
}

void ForwardWatch::end_quietly(PyObject* module, PyObject* args, PyObject* keywords) noexcept {
  try {
    const py::error_scope forward_may_have_raised;
    end(module, args, keywords);
  } catch (...) {
  }
}

bool ForwardWatch::begin(PyObject* module, PyObject* args, PyObject* keywords) {
  // Without parameters, a loss or an augmentation: it belongs to the phase it is called in.
  if (!is_root(module)) return false;
  // Recomputation within torch.autograd.grad, in a thread of autograd's.
  if (is_in_autograd()) return false;
  if (!contains(seen_, module)) seen_.push_back(module);
  if (seen_.size() > most_) {
    most_ = kMostModulesAfterACrowd;
    armed_ = false;
  }
  const py::object children = attribute(module, modules_);
  PyObject* wrapped = nullptr;  // by torch.compile
  if (PyDict_Check(children.ptr()) != 0) {
    wrapped = PyDict_GetItem(children.ptr(), orig_mod_.ptr());
  }
  const py::object training = attribute(wrapped != nullptr ? wrapped : module, training_);
  const bool learns =
      training.ptr() == Py_True && call_without_arguments(torch_.is_grad_enabled).ptr() == Py_True;
  PhaseStack& stack = PhaseStack::of_this_thread();
  if (!stack.begin(learns ? Work::kForward : Work::kEval)) return false;
  learns_ = learns;
  if (is_empty(children)) {  // nothing within that must not be seen
    stack.end(Work::kForward);
    shapes_.note(module, learns, args, keywords);
    return false;
  }
  disarm();
  return true;
}

void ForwardWatch::end(PyObject* module, PyObject* args, PyObject* keywords) {
  PhaseStack::of_this_thread().end(Work::kForward);
  leave_forward();
  if (!on_) return;
  // Not rearm(): the phase goes on, and the modules seen in it with it.
  armed_ = inside_.empty() && seen_.size() <= most_;
  shapes_.note(module, learns_, args, keywords);
}

bool ForwardWatch::is_root(PyObject* module) {
  for (const Root& root : roots_) {
    if (root.module == module) return true;
  }
  if (!has_parameters(module)) return false;
  if (roots_.size() < kMostRoots) {
    const py::handle root(module);
    roots_.push_back({module, py::weakref(root), py::type::of(root)});
  }
  return true;
}

bool ForwardWatch::has_parameters(const py::handle& module) const {
  const py::object parameters = attribute(module, parameters_);
  const py::object children = attribute(module, modules_);
  if (is_empty(parameters) && is_empty(children)) return false;  // the usual loss
  for (const py::handle parameter : values_of(parameters)) {
    if (!parameter.is_none()) return true;
  }
  for (const py::handle child : values_of(children)) {
    if (!child.is_none() && has_parameters(child)) return true;
  }
  return false;
}

}  // namespace gpumemtrace::python
