// Which shapes modules are given: noted natively, since it is done for each forward.
#pragma once

#include <pybind11/pybind11.h>

namespace gpumemtrace::python {

// All under the GIL. Throws py::error_already_set when an argument is exotic.
class InputShapes {
 public:
  explicit InputShapes(pybind11::object tensor_type) : tensor_(std::move(tensor_type)) {}

  // Notes (id of the module, whether it learns, name or position, shape, dtype), each once, of the
  // tensors among the first arguments; of an argument that is a dict, list or tuple, those in it.
  // `keywords` may be nullptr.
  void note(PyObject* module, bool learns, PyObject* arguments, PyObject* keywords);

  pybind11::list noted() const { return pybind11::list(noted_); }
  void clear() { noted_.clear(); }

 private:
  struct Call {
    PyObject* module;
    bool learns;
    Py_ssize_t room;  // so many tensors are still looked at
  };
  void note_argument(Call& call, PyObject* name, PyObject* value);
  void note_items(Call& call, PyObject* items);
  void note_tensor(Call& call, PyObject* name, PyObject* value);

  const pybind11::handle shape_ = PyUnicode_InternFromString("shape");
  const pybind11::handle dtype_ = PyUnicode_InternFromString("dtype");
  pybind11::object tensor_;
  pybind11::dict noted_;  // as keys
};

}  // namespace gpumemtrace::python
