// Which module is the outermost one, and when its forward begins and ends:
// gpumemtrace.capture.forward_watch says what for. Also the modules that have run, and the shapes of
// what they were given.
//
// Everything runs under the GIL. Nothing raises: a module that lacks what we look at (an exotic one of
// TorchScript's) is not seen, and that is all.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <vector>

#include "python/input_shapes.h"
#include "python/module_types.h"

namespace gpumemtrace::python {

class ForwardWatch {
 public:
  struct Torch {
    pybind11::type module;
    pybind11::object tensor;                 // the class
    pybind11::object is_grad_enabled;        // () -> bool
    pybind11::object current_autograd_node;  // () -> the node, or None
  };

  // The one of this process, which is never destroyed: types hold its function to the end. nullptr:
  // make() has not been called yet.
  static ForwardWatch* instance() noexcept { return instance_; }
  static void make(Torch torch);

  ModuleTypes& types() noexcept { return types_; }
  const pybind11::type& module_type() const noexcept { return torch_.module; }

  void start();
  void stop();

  // Waits for the next forward, unless some thread is within one or within a backward: another
  // phase has begun.
  void rearm() noexcept;
  // Modules called from now on are not looked at, in whatever thread, until release(). False: this
  // thread was within a forward or backward already.
  bool disarm();
  void release(bool entered);
  // Nothing is going on in this thread: a forward whose end was never told is over.
  void leave_forward();

  // Whether this thread runs a node of autograd's.
  bool is_in_autograd() const;

  // The outermost modules that have run and live.
  pybind11::list roots() const;
  pybind11::list inputs() const { return shapes_.noted(); }

 private:
  struct Root {
    PyObject* module;  // only compared; a new module in a dead one's place is taken for it
    pybind11::weakref weak;
    pybind11::object type;
  };

  explicit ForwardWatch(Torch torch);
  // The tp_call of modules.
  static PyObject* call(PyObject* module, PyObject* args, PyObject* keywords);
  bool begin_quietly(PyObject* module, PyObject* args, PyObject* keywords) noexcept;
  void end_quietly(PyObject* module, PyObject* args, PyObject* keywords) noexcept;
  // True: end() is to be called.
  bool begin(PyObject* module, PyObject* args, PyObject* keywords);
  void end(PyObject* module, PyObject* args, PyObject* keywords);
  bool is_root(PyObject* module);
  bool has_parameters(const pybind11::handle& module) const;
  void look_at_types();

  static ForwardWatch* instance_;

  const pybind11::handle modules_ = PyUnicode_InternFromString("_modules");
  const pybind11::handle parameters_ = PyUnicode_InternFromString("_parameters");
  const pybind11::handle orig_mod_ = PyUnicode_InternFromString("_orig_mod");
  const pybind11::handle training_ = PyUnicode_InternFromString("training");

  Torch torch_;
  ModuleTypes types_;
  InputShapes shapes_;
  bool on_ = false;
  bool armed_ = false;   // a forward is waited for
  bool learns_ = false;  // the forward that goes on
  std::size_t most_;
  int searches_left_ = 0;
  std::vector<unsigned long> inside_;  // threads within a forward or backward
  std::vector<PyObject*> seen_;        // modules called since the last change of phase
  std::vector<Root> roots_;            // outermost modules with parameters
};

}  // namespace gpumemtrace::python
