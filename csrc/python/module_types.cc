#include "python/module_types.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace py = pybind11;

namespace gpumemtrace::python {
namespace {

// A program that makes classes all the time must not pay for it at each change of phase.
constexpr std::size_t kMostAssigned = 64;

PyTypeObject* native(const py::handle& type) { return reinterpret_cast<PyTypeObject*>(type.ptr()); }

bool defines_call(const py::handle& type) {
  return PyDict_GetItemString(native(type)->tp_dict, "__call__") != nullptr;
}

}  // namespace

void ModuleTypes::start(const py::type& module_type, py::list told) {
  if (on_) return;
  module_type_ = native(module_type);
  if (old_call_ == nullptr) old_call_ = module_type_->tp_call;
  replace_all(old_call_, call_);
  told_ = std::move(told);
  on_ = true;
}

void ModuleTypes::stop() {
  if (!on_) return;
  on_ = false;
  told_ = py::list();
  assigned_.clear();
  replace_all(call_, old_call_);
}

PyObject* ModuleTypes::init_subclass(PyObject* cls, PyObject* keywords) {
  const auto base = py::reinterpret_steal<py::object>(PyObject_CallFunctionObjArgs(
      reinterpret_cast<PyObject*>(&PySuper_Type), module_type_, cls, nullptr));
  if (!base) return nullptr;
  const auto original =
      py::reinterpret_steal<py::object>(PyObject_GetAttrString(base.ptr(), "__init_subclass__"));
  if (!original) return nullptr;
  PyObject* const result = PyObject_VectorcallDict(original.ptr(), nullptr, 0, keywords);
  if (result == nullptr || !on_) return result;
  try {
    // Another tp_call than Module's own is not ours to replace.
    if (native(cls)->tp_call == old_call_) {
      put(cls);
      if (assigned_.size() < kMostAssigned) assigned_.push_back(py::weakref(py::handle(cls)));
    }
  } catch (...) {  // what pybind11 throws has taken Python's error with it
  }
  return result;
}

void ModuleTypes::put(const py::handle& type) {
  native(type)->tp_call = call_;
  const py::list told = told_;  // what is called may end it
  for (std::size_t i = 0; i < told.size(); ++i) {
    const py::object function = told[i];
    PyObject* const done = PyObject_CallOneArg(function.ptr(), type.ptr());
    if (done == nullptr) PyErr_Clear();
    Py_XDECREF(done);
  }
}

void ModuleTypes::look_again() {
  if (module_type_->tp_call == old_call_) replace_all(old_call_, call_);
  std::vector<py::weakref> assigned = std::exchange(assigned_, {});
  const auto is_over = [this](const py::weakref& weak) {
    const py::object type = weak();
    if (type.is_none()) return true;
    if (native(type)->tp_call == old_call_) put(type);
    return !defines_call(type);
  };
  assigned.erase(std::remove_if(assigned.begin(), assigned.end(), is_over), assigned.end());
  assigned_.insert(assigned_.end(), assigned.begin(), assigned.end());
}

void ModuleTypes::replace_all(ternaryfunc from, ternaryfunc to) {
  // Not that of somebody's metaclass.
  const py::object subclasses_of =
      py::handle(reinterpret_cast<PyObject*>(&PyType_Type)).attr("__subclasses__");
  std::vector<py::object> types{
      py::reinterpret_borrow<py::object>(py::handle(reinterpret_cast<PyObject*>(module_type_)))};
  while (!types.empty()) {
    const py::object type = types.back();
    types.pop_back();
    if (native(type)->tp_call == from) {
      if (to == call_) {
        put(type);
      } else {
        native(type)->tp_call = to;
      }
    }
    for (const py::handle subclass : py::list(subclasses_of(type))) {
      types.push_back(py::reinterpret_borrow<py::object>(subclass));
    }
  }
}

}  // namespace gpumemtrace::python
