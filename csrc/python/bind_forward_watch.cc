// What gpumemtrace.capture.forward_watch and module_types ask for. Once per process or per phase, so
// by pybind11; what a training step calls is in bind_training_calls.cc.
#include <pybind11/pybind11.h>

#include <utility>

#include "python/bindings.h"
#include "python/forward_watch.h"

namespace py = pybind11;

namespace gpumemtrace::python {
namespace {

ForwardWatch& watch() {
  if (ForwardWatch* made = ForwardWatch::instance()) return *made;
  throw py::value_error("make_forward_watch() comes first");
}

PyObject* init_module_subclass(PyObject*, PyObject* args, PyObject* keywords) {
  if (PyTuple_GET_SIZE(args) != 1 || ForwardWatch::instance() == nullptr) {
    PyErr_SetString(PyExc_TypeError, "init_module_subclass() takes the new class of modules");
    return nullptr;
  }
  return ForwardWatch::instance()->types().init_subclass(PyTuple_GET_ITEM(args, 0), keywords);
}

PyMethodDef functions[] = {
    {"init_module_subclass",
     reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(init_module_subclass)),
     METH_VARARGS | METH_KEYWORDS,
     "init_module_subclass(cls, **keywords) -> None\n\ntorch.nn.Module's __init_subclass__."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

void register_forward_watch(py::module_& module) {
  module.def(
      "make_forward_watch",
      [](py::type module_type, py::object tensor, py::object is_grad_enabled,
         py::object current_autograd_node) {
        ForwardWatch::make({std::move(module_type), std::move(tensor), std::move(is_grad_enabled),
                            std::move(current_autograd_node)});
      },
      py::kw_only(), py::arg("module_type"), py::arg("tensor"), py::arg("is_grad_enabled"),
      py::arg("current_autograd_node"), "Before all that follows; later calls change nothing.");
  module.def("start_forwards", [] { watch().start(); });
  module.def("stop_forwards", [] { watch().stop(); });
  module.def("disarm_forwards", [] { return watch().disarm(); });
  module.def(
      "release_forwards", [](bool entered) { watch().release(entered); }, py::arg("entered"));
  module.def("forward_roots", [] { return watch().roots(); });
  module.def("forward_inputs", [] { return watch().inputs(); });

  module.def(
      "start_module_types",
      [](py::list told) { watch().types().start(watch().module_type(), std::move(told)); },
      py::arg("told"));
  module.def("stop_module_types", [] { watch().types().stop(); });
  if (PyModule_AddFunctions(module.ptr(), functions) != 0) throw py::error_already_set();
  module.def("look_at_module_types", [] { watch().types().look(); });
}

}  // namespace gpumemtrace::python
