// Which shapes modules are given: noted natively, since it is done for each forward.
#pragma once

#include <pybind11/pybind11.h>

#include <array>
#include <cstddef>
#include <utility>

namespace gpumemtrace::python {

// All under the GIL. Throws py::error_already_set when an argument is exotic.
class InputShapes {
 public:
  explicit InputShapes(pybind11::object tensor_type) : tensor_(std::move(tensor_type)) {}

  // Notes (id of the module, whether it learns, name or position, shape, dtype), each once, of the
  // tensors among the first arguments; of an argument that is a dict, list or tuple, those in it.
  // `keywords` may be nullptr. Nearly always they are those of the call before, which takes no more
  // than to ask for shape and dtype and to compare them.
  void note(PyObject* module, bool learns, PyObject* arguments, PyObject* keywords);

  pybind11::list noted() const { return pybind11::list(noted_); }
  void clear() {
    noted_.clear();
    last_ = {};
  }

 private:
  struct Call {
    PyObject* module;
    bool learns;
    Py_ssize_t room;  // so many tensors are still looked at
  };
  // The last one that was given to a module as this argument.
  struct Last {
    PyObject* module = nullptr;  // only compared
    bool learns = false;
    pybind11::object name;
    pybind11::object shape;
    pybind11::object dtype;
  };
  static constexpr std::size_t kLasts = 16;

  void note_argument(Call& call, PyObject* name, PyObject* value);
  void note_items(Call& call, PyObject* items);
  Last& last_of(PyObject* module, PyObject* name);
  void note_tensor(Call& call, PyObject* name, PyObject* value);

  const pybind11::handle shape_ = PyUnicode_InternFromString("shape");
  const pybind11::handle dtype_ = PyUnicode_InternFromString("dtype");
  pybind11::object tensor_;
  pybind11::dict noted_;  // as keys
  std::array<Last, kLasts> last_;
};

}  // namespace gpumemtrace::python
