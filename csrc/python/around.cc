#include "python/around.h"

#include <structmember.h>

#include <cstddef>

namespace py = pybind11;

namespace gpumemtrace::python {
namespace {

struct Around {
  PyObject_HEAD vectorcallfunc call;
  PyObject* original;
  PyObject* attributes;
  Ends ends;
};

Around& of(PyObject* self) { return *reinterpret_cast<Around*>(self); }

PyObject* call(PyObject* self, PyObject* const* args, std::size_t count, PyObject* names) {
  Around& around = of(self);
  const long begun = around.ends.begin();
  PyObject* const result = PyObject_Vectorcall(around.original, args, count, names);
  if (begun == 0) return result;
  if (result != nullptr) {
    around.ends.end(begun);
  } else {
    const py::error_scope original_has_raised;
    around.ends.end(begun);
  }
  return result;
}

PyObject* bind(PyObject* self, PyObject* owner, PyObject*) {
  if (owner == nullptr || owner == Py_None) return Py_NewRef(self);
  return PyMethod_New(self, owner);
}

// By its name, as functions are.
PyObject* reduce(PyObject* self, PyObject*) { return PyObject_GetAttrString(self, "__qualname__"); }

PyObject* represent(PyObject* self) { return PyObject_Repr(of(self).original); }

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(of(self).original);
  Py_VISIT(of(self).attributes);
  return 0;
}

int clear(PyObject* self) {
  Py_CLEAR(of(self).original);
  Py_CLEAR(of(self).attributes);
  return 0;
}

void deallocate(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  clear(self);
  PyObject_GC_Del(self);
  Py_DECREF(type);
}

PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Around, call), READONLY, nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(Around, attributes), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};
PyMethodDef methods[] = {{"__reduce__", reduce, METH_NOARGS, nullptr},
                         {nullptr, nullptr, 0, nullptr}};
PyGetSetDef properties[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

template <typename Function>
void* slot(Function* function) {
  return reinterpret_cast<void*>(function);
}

PyTypeObject* type() {
  static PyTypeObject* const made = [] {
    static PyType_Slot slots[] = {{Py_tp_call, slot(PyVectorcall_Call)},
                                  {Py_tp_descr_get, slot(bind)},
                                  {Py_tp_repr, slot(represent)},
                                  {Py_tp_traverse, slot(traverse)},
                                  {Py_tp_clear, slot(clear)},
                                  {Py_tp_dealloc, slot(deallocate)},
                                  {Py_tp_members, members},
                                  {Py_tp_methods, methods},
                                  {Py_tp_getset, properties},
                                  {0, nullptr}};
    static PyType_Spec spec = {"gpumemtrace._core.Around", sizeof(Around), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
                                   Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR |
                                   Py_TPFLAGS_DISALLOW_INSTANTIATION,
                               slots};
    return reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  }();
  if (made == nullptr) throw py::error_already_set();
  return made;
}

}  // namespace

py::object make_around(py::object original, Ends ends) {
  PyTypeObject* const kind = type();
  PyObject* const self = kind->tp_alloc(kind, 0);
  if (self == nullptr) throw py::error_already_set();
  of(self).call = call;
  of(self).original = original.release().ptr();
  of(self).ends = ends;
  return py::reinterpret_steal<py::object>(self);
}

}  // namespace gpumemtrace::python
