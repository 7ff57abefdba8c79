// Where Python calls torch's modules: `module(x)` goes through the tp_call of the module's type. That
// of torch.nn.Module and its subclasses is replaced here by one of ours, which goes on to the old
// one.
//
// What Python code sees of it is an `__init_subclass__` of torch.nn.Module's while it lasts: not
// Module.__call__, no hook in torch's tables. So eager modules keep torch's fast path, and
// torch.compile traces and guards what it would without us.
//
// CPython gives a type its old tp_call back when somebody assigns to its `__call__`, or to that of a
// base: look() and mend() put ours in again. A new class has the old one, too; init_subclass() is
// told of it, unless a class between has an `__init_subclass__` that doesn't call its base's: for
// those, look_everywhere().
//
// csrc/torch/module_calls.h puts its own on top of this one: it starts later, is told of each class
// that gets ours, and stops earlier. All under the GIL.
#pragma once

#include <pybind11/pybind11.h>

#include <vector>

namespace gpumemtrace::python {

class ModuleTypes {
 public:
  explicit ModuleTypes(ternaryfunc call) : call_(call) {}

  // `module_type`: torch.nn.Module, the same each time. All subclasses that there are. `told`:
  // functions that are called with each class that gets ours later; the list may change.
  void start(const pybind11::type& module_type, pybind11::list told);
  void stop();

  // Module.__init_subclass__(**keywords) of the new class `cls`: does what would be done without us.
  // In C, so that tracebacks are the same, too, and torch.compile comes across no frame of ours.
  PyObject* init_subclass(PyObject* cls, PyObject* keywords);

  // A few comparisons, unless somebody has assigned to a `__call__`. All three of these throw
  // py::error_already_set.
  void look() {
    if (on_ && (module_type_->tp_call == old_call_ || !assigned_.empty())) look_again();
  }
  void look_everywhere() {
    if (on_) replace_all(old_call_, call_);
  }
  // Of a class that is known to matter.
  void mend(PyTypeObject* type) {
    if (on_ && type->tp_call == old_call_) put(reinterpret_cast<PyObject*>(type));
  }

  // What there was before.
  PyObject* call_old(PyObject* module, PyObject* args, PyObject* keywords) const {
    return old_call_(module, args, keywords);
  }

 private:
  void put(const pybind11::handle& type);
  void look_again();
  void replace_all(ternaryfunc from, ternaryfunc to);

  ternaryfunc call_;
  ternaryfunc old_call_ = nullptr;
  PyTypeObject* module_type_ = nullptr;  // nullptr: never started
  bool on_ = false;
  pybind11::list told_;
  // Classes to whose `__call__` something is assigned once they are made, and perhaps again later
  // (torch.fx.GraphModule makes one for each graph); weak.
  std::vector<pybind11::weakref> assigned_;
};

}  // namespace gpumemtrace::python
