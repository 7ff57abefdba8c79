#include "torch/module_calls.h"

#include <unordered_map>
#include <utility>
#include <vector>

#include "capture/producer.h"
#include "torch/autograd_nodes.h"

namespace py = pybind11;

namespace gpumemtrace::hook {
namespace {

using capture::t_site;

// By address; the entry goes when the module does, before another one can lie there.
struct Known {
  std::uint32_t site = 0;
  PyObject* weak = nullptr;  // its callback erases the entry
};
std::unordered_map<PyObject*, Known>& known_modules() {
  static auto* modules = new std::unordered_map<PyObject*, Known>;
  return *modules;
}

// self: the address of the module that has died, as an int.
PyObject* forget_module(PyObject* self, PyObject*) {
  auto* const module = static_cast<PyObject*>(PyLong_AsVoidPtr(self));
  const auto found = known_modules().find(module);
  if (found != known_modules().end()) {
    PyObject* const weak = found->second.weak;
    known_modules().erase(found);
    Py_XDECREF(weak);
  }
  Py_RETURN_NONE;
}
PyMethodDef forget_definition = {"gpumemtrace_forget_module", &forget_module, METH_O, nullptr};

// nullptr, without an error: it can't be referred to weakly.
PyObject* weak_reference(PyObject* module) {
  PyObject* const address = PyLong_FromVoidPtr(module);
  PyObject* const callback =
      address == nullptr ? nullptr : PyCFunction_New(&forget_definition, address);
  PyObject* const weak = callback == nullptr ? nullptr : PyWeakref_NewRef(module, callback);
  Py_XDECREF(callback);
  Py_XDECREF(address);
  if (weak == nullptr) PyErr_Clear();
  return weak;
}

// Python code that runs within compiled code is compiled too, by whatever name it is called; what is
// ours must not be.
class UntracedPython {
 public:
  UntracedPython()
      : set_(py::module_::import("torch._C._dynamo.eval_frame").attr("set_eval_frame")),
        before_(set_(py::none())) {}
  ~UntracedPython() {
    PyObject* const done = PyObject_CallOneArg(set_.ptr(), before_.ptr());
    if (done == nullptr) PyErr_Clear();
    Py_XDECREF(done);
  }
  UntracedPython(const UntracedPython&) = delete;
  UntracedPython& operator=(const UntracedPython&) = delete;

 private:
  py::object set_;
  py::object before_;
};

std::vector<py::type> direct_subclasses(const py::handle& type) {
  // Not that of somebody's metaclass.
  const py::object subclasses_of =
      py::handle(reinterpret_cast<PyObject*>(&PyType_Type)).attr("__subclasses__");
  std::vector<py::type> types;
  for (const py::handle subclass : py::list(subclasses_of(type))) {
    types.push_back(py::reinterpret_borrow<py::type>(subclass));
  }
  return types;
}

}  // namespace

ModuleCalls& ModuleCalls::instance() {
  static auto* calls = new ModuleCalls;
  return *calls;
}

void ModuleCalls::start(const py::type& module_type, py::object name) {
  module_type_ = reinterpret_cast<PyTypeObject*>(module_type.ptr());
  name_ = std::move(name);
  if (old_call_ == nullptr) old_call_ = module_type_->tp_call;
  skip_nodes();
  on_ = true;
  std::vector<py::type> types{module_type};
  while (!types.empty()) {
    const py::type type = types.back();
    types.pop_back();
    watch_type(type);
    for (const py::type& subclass : direct_subclasses(type)) types.push_back(subclass);
  }
}

void ModuleCalls::stop() {
  if (!on_) return;
  on_ = false;
  std::vector<py::type> types{
      py::reinterpret_borrow<py::type>(py::handle(reinterpret_cast<PyObject*>(module_type_)))};
  while (!types.empty()) {
    const py::type type = types.back();
    types.pop_back();
    auto* const native = reinterpret_cast<PyTypeObject*>(type.ptr());
    if (native->tp_call == &ModuleCalls::call) native->tp_call = old_call_;
    for (const py::type& subclass : direct_subclasses(type)) types.push_back(subclass);
  }
  name_ = py::none();
  forget_sites();
}

void ModuleCalls::watch_type(const py::type& type) {
  auto* const native = reinterpret_cast<PyTypeObject*>(type.ptr());
  // Another tp_call than Module's own is not ours to replace.
  if (on_ && native->tp_call == old_call_) native->tp_call = &ModuleCalls::call;
}

void ModuleCalls::set_site(const py::object& module, std::uint32_t site) {
  Known& known = known_modules()[module.ptr()];
  if (known.weak == nullptr) known.weak = weak_reference(module.ptr());
  if (known.weak == nullptr) {
    known_modules().erase(module.ptr());
    return;
  }
  known.site = site;
}

void ModuleCalls::forget_sites() {
  auto old = std::exchange(known_modules(), {});
  for (auto& [module, known] : old) Py_XDECREF(known.weak);
}

std::uint32_t ModuleCalls::begin(std::uint32_t site) noexcept {
  claim_nodes(t_site);
  return std::exchange(t_site, site);
}

std::uint32_t ModuleCalls::site_of(PyObject* module) noexcept {
  const auto said = [](const Known& known) { return known.site != 0 ? known.site : t_site; };
  auto found = known_modules().find(module);
  if (found != known_modules().end()) return said(found->second);
  try {
    const UntracedPython untraced;
    name_(py::handle(module), t_site == 0);
  } catch (...) {  // an exotic module: it is simply not seen
    PyErr_Clear();
  }
  found = known_modules().find(module);
  return found != known_modules().end() ? said(found->second) : t_site;
}

PyObject* ModuleCalls::call(PyObject* module, PyObject* args, PyObject* keywords) {
  ModuleCalls& calls = instance();
  if (!calls.on_) return calls.old_call_(module, args, keywords);
  const std::uint32_t site = calls.site_of(module);
  const std::uint32_t outer = t_site;
  if (site == outer) return calls.old_call_(module, args, keywords);
  begin(site);
  PyObject* const result = calls.old_call_(module, args, keywords);
  // A session that began or ended meanwhile has sites of its own.
  begin(calls.on_ ? outer : 0);
  return result;
}

}  // namespace gpumemtrace::hook
