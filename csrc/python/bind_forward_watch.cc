// The two module hooks of gpumemtrace.capture.forward_watch, which says what they are for. They run
// in every training step, so they are here: in Python they would take longer than all the rest.
//
// They also note, of each outermost module, the shapes of the tensors it is given: a look into a
// dictionary for each of the first few arguments.
//
// Everything below runs under the GIL. Nothing raises: a module that lacks what we look at (an
// exotic one of TorchScript's) is not seen, and that is all.
#include <pybind11/pybind11.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "capture/phase_stack.h"
#include "python/bindings.h"

namespace py = pybind11;

namespace gpumemtrace::python {
namespace {

using capture::PhaseStack;
using capture::Work;

// A script that calls the parts of its model one by one has as many outermost modules as parts.
// After this many different ones without a change of phase there is no more to learn until the next
// change; and once that has happened, such a script gets fewer.
constexpr std::size_t kMostModules = 16;
constexpr std::size_t kMostModulesAfterACrowd = 2;
constexpr std::size_t kMostRoots = 64;
// Arguments of a call that are looked at, and different shapes that are kept, of all modules.
constexpr Py_ssize_t kMostArguments = 4;
constexpr Py_ssize_t kMostInputs = 256;

class ForwardHooks {
 public:
  // `waiting`: torch's table of global forward pre-hooks. `hook_id`: a number that no other hook
  // has, there or in a module. `tensor`: the class. The others are functions without arguments, or
  // of a module.
  ForwardHooks(py::dict waiting, py::object hook_id, py::object tensor, py::object has_parameters,
               py::object is_grad_enabled, py::object current_autograd_node)
      : waiting_(std::move(waiting)),
        hook_id_(std::move(hook_id)),
        tensor_(std::move(tensor)),
        has_parameters_(std::move(has_parameters)),
        is_grad_enabled_(std::move(is_grad_enabled)),
        current_autograd_node_(std::move(current_autograd_node)) {
    const py::capsule self(this);
    before_ = py::reinterpret_steal<py::object>(PyCFunction_New(&before_definition, self.ptr()));
    after_ = py::reinterpret_steal<py::object>(PyCFunction_New(&after_definition, self.ptr()));
  }

  void start() {
    on_ = true;
    rearm();
  }

  void stop() {
    on_ = false;
    remove(waiting_);
    clean_up();
    inside_.clear();
    roots_.clear();
    inputs_.clear();
  }

  void rearm() {
    seen_.clear();
    if (on_ && inside_.empty()) put(waiting_, before_);
  }

  bool disarm() {
    remove(waiting_);
    const unsigned long thread = PyThread_get_thread_ident();
    if (std::find(inside_.begin(), inside_.end(), thread) != inside_.end()) return false;
    inside_.push_back(thread);
    return true;
  }

  void release(bool entered) {
    if (!entered) return;
    leave_forward();
    rearm();
  }

  void leave_forward() {
    const unsigned long thread = PyThread_get_thread_ident();
    inside_.erase(std::remove(inside_.begin(), inside_.end(), thread), inside_.end());
  }

  bool is_armed() const { return PyDict_Contains(waiting_.ptr(), hook_id_.ptr()) == 1; }

  py::list roots() const {
    py::list alive;
    for (const Root& root : roots_) {
      if (py::object module = root.weak(); !module.is_none()) alive.append(module);
    }
    return alive;
  }

  py::list inputs() const { return py::list(inputs_); }

 private:
  struct Root {
    PyObject* module;  // only compared; a new module in a dead one's place is taken for it
    py::weakref weak;
  };

  static PyMethodDef before_definition;
  static PyMethodDef after_definition;

  static ForwardHooks& of(PyObject* capsule) {
    return *static_cast<ForwardHooks*>(PyCapsule_GetPointer(capsule, nullptr));
  }

  // hook(module, args) and hook(module, args, kwargs, result), as torch calls them.
  static PyObject* before(PyObject* self, PyObject* const* args, Py_ssize_t count) {
    if (count > 0) {
      try {
        of(self).begin(args[0], count > 1 ? args[1] : nullptr);
      } catch (py::error_already_set&) {
      } catch (const std::exception&) {
      }
    }
    Py_RETURN_NONE;
  }
  static PyObject* after(PyObject* self, PyObject* const* args, Py_ssize_t count) {
    if (count > 2) {
      try {
        of(self).end(args[0], args[1], args[2]);
      } catch (py::error_already_set&) {
      } catch (const std::exception&) {
      }
    }
    Py_RETURN_NONE;
  }

  void begin(PyObject* module, PyObject* arguments) {
    // Without parameters, a loss or an augmentation: it belongs to the phase it is called in.
    if (!is_root(module)) return;
    // Recomputation within torch.autograd.grad, in a thread of autograd's.
    if (!current_autograd_node_().is_none()) return;
    if (std::find(seen_.begin(), seen_.end(), module) == seen_.end()) seen_.push_back(module);
    if (seen_.size() > most_) {
      most_ = kMostModulesAfterACrowd;
      remove(waiting_);
    }
    const py::object children = attribute(module, kModules);
    if (PyDict_Check(children.ptr()) == 0) return;
    PyObject* wrapped = PyDict_GetItem(children.ptr(), kOrigMod.ptr());  // torch.compile's
    const py::object training = attribute(wrapped != nullptr ? wrapped : module, kTraining);
    const bool learns = training.ptr() == Py_True && is_grad_enabled_().ptr() == Py_True;
    PhaseStack& stack = PhaseStack::of_this_thread();
    if (!stack.begin(learns ? Work::kForward : Work::kEval)) return;
    learns_ = learns;
    if (is_empty(children)) {  // nothing within that must not be seen
      stack.end(Work::kForward);
      note_inputs(module, arguments, nullptr);
      return;
    }
    try {
      clean_up();
      put(attribute(module, kForwardHooks), after_);
      put(attribute(module, kAlwaysCalled), py::bool_(true));
      put(attribute(module, kWithKwargs), py::bool_(true));
    } catch (...) {  // its end would never be told
      stack.end(Work::kForward);
      throw;
    }
    disarm();
  }

  void end(PyObject* module, PyObject* arguments, PyObject* keywords) {
    PhaseStack::of_this_thread().end(Work::kForward);
    if (caller_goes_over_a_copy()) {
      remove_hook(module);
    } else {
      left_behind_.push_back(py::reinterpret_borrow<py::object>(module));
    }
    leave_forward();
    // Not rearm(): the phase goes on, and the modules seen in it with it.
    if (on_ && inside_.empty() && seen_.size() <= most_) put(waiting_, before_);
    note_inputs(module, arguments, keywords);
  }

  // Notes (id of the module, whether it learns, name or position, shape, dtype) of the tensors
  // among the first arguments; of one that is a dict, list or tuple, those in it.
  void note_inputs(PyObject* module, PyObject* arguments, PyObject* keywords) {
    if (!on_) return;
    Py_ssize_t room = kMostArguments;
    if (arguments != nullptr && PyTuple_Check(arguments) != 0) {
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(arguments) && room > 0; ++i) {
        const py::int_ position(i);
        note_argument(module, position.ptr(), PyTuple_GET_ITEM(arguments, i), room);
      }
    }
    if (keywords != nullptr && PyDict_Check(keywords) != 0) note_items(module, keywords, room);
  }

  void note_argument(PyObject* module, PyObject* name, PyObject* value, Py_ssize_t& room) {
    if (PyDict_CheckExact(value) != 0) {
      note_items(module, value, room);
    } else if (PyTuple_CheckExact(value) != 0 || PyList_CheckExact(value) != 0) {
      for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value) && room > 0; ++i) {
        note_tensor(module, name, PySequence_Fast_GET_ITEM(value, i), room);
      }
    } else {
      note_tensor(module, name, value, room);
    }
  }

  void note_items(PyObject* module, PyObject* items, Py_ssize_t& room) {
    PyObject* name = nullptr;
    PyObject* value = nullptr;
    Py_ssize_t at = 0;
    while (room > 0 && PyDict_Next(items, &at, &name, &value) != 0) {
      note_tensor(module, name, value, room);
    }
  }

  void note_tensor(PyObject* module, PyObject* name, PyObject* value, Py_ssize_t& room) {
    if (PyObject_TypeCheck(value, reinterpret_cast<PyTypeObject*>(tensor_.ptr())) == 0) return;
    --room;
    const py::tuple input = py::make_tuple(
        py::reinterpret_steal<py::object>(PyLong_FromVoidPtr(module)), py::bool_(learns_),
        py::handle(name), attribute(value, kShape), attribute(value, kDtype));
    const int known = PyDict_Contains(inputs_.ptr(), input.ptr());
    if (known < 0) throw py::error_already_set();
    if (known == 0 && PyDict_Size(inputs_.ptr()) < kMostInputs) inputs_[input] = py::none();
  }

  bool is_root(PyObject* module) {
    for (const Root& root : roots_) {
      if (root.module == module) return true;
    }
    if (is_empty(attribute(module, kParameters)) && is_empty(attribute(module, kModules))) {
      return false;  // spares the usual loss the call
    }
    if (has_parameters_(py::handle(module)).ptr() != Py_True) return false;
    if (roots_.size() < kMostRoots) roots_.push_back({module, py::weakref(py::handle(module))});
    return true;
  }

  static bool is_empty(const py::object& dict) {
    return PyDict_Check(dict.ptr()) != 0 && PyDict_GET_SIZE(dict.ptr()) == 0;
  }

  // torch calls hooks from the function `inner` over a copy of the module's dictionary; when
  // forward raised, from `_call_impl` itself, over that very dictionary: it must not change now.
  static bool caller_goes_over_a_copy() {
    PyFrameObject* frame = PyEval_GetFrame();
    if (frame == nullptr) return false;
    PyCodeObject* code = PyFrame_GetCode(frame);
    const bool copy = PyUnicode_CompareWithASCIIString(code->co_name, "inner") == 0;
    Py_DECREF(code);
    return copy;
  }

  void clean_up() {
    for (const py::object& module : left_behind_) remove_hook(module.ptr());
    left_behind_.clear();
  }

  void remove_hook(PyObject* module) {
    remove(attribute(module, kForwardHooks));
    remove(attribute(module, kAlwaysCalled));
    remove(attribute(module, kWithKwargs));
  }

  static py::object attribute(PyObject* module, const py::handle& name) {
    return py::getattr(py::handle(module), name);
  }
  void put(const py::handle& dict, const py::handle& value) {
    if (PyObject_SetItem(dict.ptr(), hook_id_.ptr(), value.ptr()) != 0)
      throw py::error_already_set();
  }
  void remove(const py::handle& dict) {
    if (PyDict_Contains(dict.ptr(), hook_id_.ptr()) == 1 &&
        PyObject_DelItem(dict.ptr(), hook_id_.ptr()) != 0) {
      throw py::error_already_set();
    }
  }

  static py::handle name(const char* text) { return PyUnicode_InternFromString(text); }
  const py::handle kModules = name("_modules");
  const py::handle kParameters = name("_parameters");
  const py::handle kOrigMod = name("_orig_mod");
  const py::handle kTraining = name("training");
  const py::handle kForwardHooks = name("_forward_hooks");
  const py::handle kAlwaysCalled = name("_forward_hooks_always_called");
  const py::handle kWithKwargs = name("_forward_hooks_with_kwargs");
  const py::handle kShape = name("shape");
  const py::handle kDtype = name("dtype");

  py::dict waiting_;
  py::object hook_id_;
  py::object tensor_;
  py::object has_parameters_;
  py::object is_grad_enabled_;
  py::object current_autograd_node_;
  py::object before_;
  py::object after_;

  bool on_ = false;
  std::size_t most_ = kMostModules;
  bool learns_ = false;                  // the forward that goes on
  std::vector<unsigned long> inside_;    // threads within a forward or backward
  std::vector<PyObject*> seen_;          // modules called since the last change of phase
  std::vector<Root> roots_;              // outermost modules with parameters
  std::vector<py::object> left_behind_;  // modules that still hold our hook
  py::dict inputs_;                      // what `note_inputs` has noted, as keys
};

PyMethodDef ForwardHooks::before_definition = {
    "gpumemtrace_before_forward",
    reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&ForwardHooks::before)),
    METH_FASTCALL, nullptr};
PyMethodDef ForwardHooks::after_definition = {
    "gpumemtrace_after_forward",
    reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&ForwardHooks::after)),
    METH_FASTCALL, nullptr};

}  // namespace

void register_forward_watch(py::module_& module) {
  // Never destroyed: a session may end within a forward, whose module then still holds a hook.
  py::class_<ForwardHooks, std::unique_ptr<ForwardHooks, py::nodelete>>(module, "ForwardHooks")
      .def(py::init<py::dict, py::object, py::object, py::object, py::object, py::object>(),
           py::arg("waiting"), py::arg("hook_id"), py::kw_only(), py::arg("tensor"),
           py::arg("has_parameters"), py::arg("is_grad_enabled"), py::arg("current_autograd_node"))
      .def("start", &ForwardHooks::start)
      .def("stop", &ForwardHooks::stop)
      .def("rearm", &ForwardHooks::rearm)
      .def("disarm", &ForwardHooks::disarm)
      .def("release", &ForwardHooks::release, py::arg("entered"))
      .def("leave_forward", &ForwardHooks::leave_forward)
      .def_property_readonly("is_armed", &ForwardHooks::is_armed)
      .def("roots", &ForwardHooks::roots)
      .def("inputs", &ForwardHooks::inputs);
}

}  // namespace gpumemtrace::python
