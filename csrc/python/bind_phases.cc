// The phase marks, in the plain C API: a `with phase(...)` outside a session has to cost less than
// a Python call, and the automatic phases call begin_work a dozen times a step.
//
// None of these raises into a training loop: only a name that is not a str does, when it is made.
#include <pybind11/pybind11.h>

#include <cstdint>

#include "capture/phase_stack.h"
#include "capture/producer.h"
#include "python/bindings.h"

namespace py = pybind11;

namespace gpumemtrace::python {
namespace {

using capture::PhaseMode;
using capture::PhaseStack;
using capture::Work;

struct Phase {
  PyObject_HEAD PyObject* name;  // a str
  std::uint64_t owner;           // of its levels in a PhaseStack; never used twice
};

Phase* as_phase(PyObject* self) { return reinterpret_cast<Phase*>(self); }

PyObject* make_phase(PyTypeObject* type, PyObject* name) {
  static std::uint64_t last_owner = 0;  // under the GIL
  PyObject* self = type->tp_alloc(type, 0);
  if (self == nullptr) return nullptr;
  Py_INCREF(name);
  as_phase(self)->name = name;
  as_phase(self)->owner = ++last_owner;
  return self;
}

PyObject* phase_new(PyTypeObject* type, PyObject* args, PyObject* keywords) {
  static const char* names[] = {"name", nullptr};
  PyObject* name = nullptr;
  if (PyArg_ParseTupleAndKeywords(args, keywords, "U:phase", const_cast<char**>(names), &name) ==
      0) {
    return nullptr;
  }
  return make_phase(type, name);
}

// phase("name"): without the detour over an argument tuple.
PyObject* phase_vectorcall(PyObject* type, PyObject* const* args, std::size_t flagged_count,
                           PyObject* keywords) {
  const Py_ssize_t count = PyVectorcall_NARGS(flagged_count);
  if (count == 1 && keywords == nullptr && PyUnicode_Check(args[0])) {
    return make_phase(reinterpret_cast<PyTypeObject*>(type), args[0]);
  }
  PyObject* tuple = PyTuple_New(count);
  PyObject* dict = PyDict_New();
  if (tuple == nullptr || dict == nullptr) {
    Py_XDECREF(tuple);
    Py_XDECREF(dict);
    return nullptr;
  }
  for (Py_ssize_t i = 0; i < count; ++i) {
    Py_INCREF(args[i]);
    PyTuple_SET_ITEM(tuple, i, args[i]);
  }
  bool whole = true;
  for (Py_ssize_t i = 0; keywords != nullptr && i < PyTuple_GET_SIZE(keywords); ++i) {
    whole = whole && PyDict_SetItem(dict, PyTuple_GET_ITEM(keywords, i), args[count + i]) == 0;
  }
  PyObject* self = whole ? phase_new(reinterpret_cast<PyTypeObject*>(type), tuple, dict) : nullptr;
  Py_DECREF(tuple);
  Py_DECREF(dict);
  return self;
}

void phase_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  Py_DECREF(as_phase(self)->name);
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* phase_enter(PyObject* self, PyObject*) {
  if (capture::active_ring() != nullptr) {
    Py_ssize_t size = 0;
    const char* text = PyUnicode_AsUTF8AndSize(as_phase(self)->name, &size);
    if (text == nullptr) {  // a lone surrogate
      PyErr_Clear();
      text = "?";
      size = 1;
    }
    try {
      PhaseStack::of_this_thread().open({text, static_cast<std::size_t>(size)},
                                        as_phase(self)->owner);
    } catch (const std::bad_alloc&) {
    }
  }
  Py_INCREF(self);
  return self;
}

PyObject* phase_exit(PyObject* self, PyObject* const*, Py_ssize_t) {
  // Without a session: what is still open is forgotten when the next one begins.
  if (capture::active_ring() == nullptr) Py_RETURN_NONE;
  try {
    PhaseStack::of_this_thread().close(as_phase(self)->owner);
  } catch (const std::bad_alloc&) {
  }
  Py_RETURN_NONE;
}

PyObject* phase_repr(PyObject* self) {
  return PyUnicode_FromFormat("phase(%R)", as_phase(self)->name);
}

PyObject* phase_name(PyObject* self, void*) {
  Py_INCREF(as_phase(self)->name);
  return as_phase(self)->name;
}

PyMethodDef phase_methods[] = {
    {"__enter__", phase_enter, METH_NOARGS, nullptr},
    {"__exit__", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(phase_exit)),
     METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef phase_properties[] = {{"name", phase_name, nullptr, "The name it was given.", nullptr},
                                  {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyType_Slot phase_slots[] = {{Py_tp_new, reinterpret_cast<void*>(phase_new)},
                             {Py_tp_dealloc, reinterpret_cast<void*>(phase_dealloc)},
                             {Py_tp_repr, reinterpret_cast<void*>(phase_repr)},
                             {Py_tp_methods, phase_methods},
                             {Py_tp_getset, phase_properties},
                             {0, nullptr}};

PyType_Spec phase_spec = {"gpumemtrace._core.Phase", sizeof(Phase), 0, Py_TPFLAGS_DEFAULT,
                          phase_slots};

bool work_of(PyObject* number, Work& work) {
  const long value = PyLong_AsLong(number);
  if (value < 0 || value >= static_cast<long>(capture::kWorkCount)) {
    if (PyErr_Occurred() == nullptr) PyErr_SetString(PyExc_ValueError, "no such work");
    return false;
  }
  work = static_cast<Work>(value);
  return true;
}

PyObject* begin_work(PyObject*, PyObject* number) {
  Work work{};
  if (!work_of(number, work)) return nullptr;
  bool begun = false;
  try {
    begun = PhaseStack::of_this_thread().begin(work);
  } catch (const std::bad_alloc&) {
  }
  return PyBool_FromLong(begun ? 1 : 0);
}

PyObject* end_work(PyObject*, PyObject* number) {
  Work work{};
  if (!work_of(number, work)) return nullptr;
  try {
    PhaseStack::of_this_thread().end(work);
  } catch (const std::bad_alloc&) {
  }
  Py_RETURN_NONE;
}

PyMethodDef work_functions[] = {
    {"begin_work", begin_work, METH_O,
     "begin_work(work: int) -> bool\n\nAutomatic work begins in this thread; False: it is part of "
     "what is going on."},
    {"end_work", end_work, METH_O,
     "end_work(work: int) -> None\n\nWork for which begin_work said True returned or threw."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

void register_phases(py::module_& module) {
  PyObject* type = PyType_FromSpec(&phase_spec);
  if (type == nullptr) throw py::error_already_set();
  reinterpret_cast<PyTypeObject*>(type)->tp_vectorcall = phase_vectorcall;
  module.add_object("Phase", py::reinterpret_steal<py::object>(type));
  if (PyModule_AddFunctions(module.ptr(), work_functions) != 0) throw py::error_already_set();

  py::enum_<PhaseMode>(module, "PhaseMode")
      .value("NONE", PhaseMode::kNone)
      .value("MANUAL", PhaseMode::kManual)
      .value("AUTO", PhaseMode::kAuto);
  module.def("begin_phases", &capture::begin_phases, py::arg("mode"),
             "A session has begun: forget what was open; AUTO: this thread starts in `init`.");
  module.def(
      "current_phase", [] { return PhaseStack::of_this_thread().current_text(); },
      "Path of this thread's phase, such as 'train/forward'; '' when there is none.");
}

}  // namespace gpumemtrace::python
