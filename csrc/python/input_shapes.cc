#include "python/input_shapes.h"

#include <cstdint>

namespace py = pybind11;

namespace gpumemtrace::python {
namespace {

// Tensors of a call that are looked at, and different ones that are kept, of all modules.
constexpr Py_ssize_t kMostArguments = 4;
constexpr Py_ssize_t kMostInputs = 256;

}  // namespace

void InputShapes::note(PyObject* module, bool learns, PyObject* arguments, PyObject* keywords) {
  Call call{module, learns, kMostArguments};
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(arguments) && call.room > 0; ++i) {
    const py::int_ position(i);
    note_argument(call, position.ptr(), PyTuple_GET_ITEM(arguments, i));
  }
  if (keywords != nullptr) note_items(call, keywords);
}

void InputShapes::note_argument(Call& call, PyObject* name, PyObject* value) {
  if (PyDict_CheckExact(value) != 0) {
    note_items(call, value);
  } else if (PyTuple_CheckExact(value) != 0 || PyList_CheckExact(value) != 0) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value) && call.room > 0; ++i) {
      note_tensor(call, name, PySequence_Fast_GET_ITEM(value, i));
    }
  } else {
    note_tensor(call, name, value);
  }
}

void InputShapes::note_items(Call& call, PyObject* items) {
  PyObject* name = nullptr;
  PyObject* value = nullptr;
  Py_ssize_t at = 0;
  while (call.room > 0 && PyDict_Next(items, &at, &name, &value) != 0) {
    note_tensor(call, name, value);
  }
}

InputShapes::Last& InputShapes::last_of(PyObject* module, PyObject* name) {
  const auto address = reinterpret_cast<std::uintptr_t>(module) >> 4U;
  return last_[(address ^ (reinterpret_cast<std::uintptr_t>(name) >> 4U)) % kLasts];
}

void InputShapes::note_tensor(Call& call, PyObject* name, PyObject* value) {
  if (PyObject_TypeCheck(value, reinterpret_cast<PyTypeObject*>(tensor_.ptr())) == 0) return;
  --call.room;
  // Kept: what follows may run Python code, which may let go of them.
  const auto tensor = py::reinterpret_borrow<py::object>(value);
  const auto argument = py::reinterpret_borrow<py::object>(name);
  const py::object shape = py::getattr(tensor, shape_);
  const py::object dtype = py::getattr(tensor, dtype_);
  Last& last = last_of(call.module, name);
  if (last.module == call.module && last.name.is(argument) && last.learns == call.learns &&
      last.dtype.is(dtype) && last.shape.equal(shape)) {
    return;
  }
  const py::tuple input =
      py::make_tuple(py::reinterpret_steal<py::object>(PyLong_FromVoidPtr(call.module)),
                     py::bool_(call.learns), argument, shape, dtype);
  const int known = PyDict_Contains(noted_.ptr(), input.ptr());
  if (known < 0) throw py::error_already_set();
  if (known == 0 && PyDict_Size(noted_.ptr()) < kMostInputs) noted_[input] = py::none();
  last = {call.module, call.learns, argument, shape, dtype};
}

}  // namespace gpumemtrace::python
