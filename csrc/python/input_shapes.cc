#include "python/input_shapes.h"

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

void InputShapes::note_tensor(Call& call, PyObject* name, PyObject* value) {
  if (PyObject_TypeCheck(value, reinterpret_cast<PyTypeObject*>(tensor_.ptr())) == 0) return;
  --call.room;
  const auto tensor = py::reinterpret_borrow<py::object>(value);  // its shape may be Python code
  const py::tuple input = py::make_tuple(
      py::reinterpret_steal<py::object>(PyLong_FromVoidPtr(call.module)), py::bool_(call.learns),
      py::handle(name), py::getattr(tensor, shape_), py::getattr(tensor, dtype_));
  const int known = PyDict_Contains(noted_.ptr(), input.ptr());
  if (known < 0) throw py::error_already_set();
  if (known == 0 && PyDict_Size(noted_.ptr()) < kMostInputs) noted_[input] = py::none();
}

}  // namespace gpumemtrace::python
