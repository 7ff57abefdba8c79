// Which module runs in a thread, seen where Python calls it.
//
// `module(x)` goes through the type's tp_call. That of torch.nn.Module and its subclasses is
// replaced here by one that notes the module and goes on to the old one. Nothing that Python code
// can see changes: not Module.__call__, no hook in torch's tables. So torch.compile, which looks at
// those, traces and guards what it would without us, and eager modules keep torch's fast path.
// What is old here is that of csrc/python/module_types.h, which is there first and tells of each class
// that gets it later: watch_type().
//
// All under the GIL, but for site_now(). Nothing raises into the user's call.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>

namespace gpumemtrace::hook {

class ModuleCalls {
 public:
  // Never destroyed: a type may hold our function to the end.
  static ModuleCalls& instance();

  // `module_type`: torch.nn.Module. `name`: called with (module, is_outermost) for a module that has
  // no site yet; gives it one by set_site(), or not.
  void start(const pybind11::type& module_type, pybind11::object name);
  void stop();
  bool is_on() const noexcept { return on_; }

  // A class of modules that has the old one.
  void watch_type(const pybind11::type& type);

  // 0: what runs in it belongs to whoever calls it.
  void set_site(const pybind11::object& module, std::uint32_t site);
  // Sites are given anew: those of a session that has ended mean nothing.
  void forget_sites();

  // What this thread does from here on, where no module runs: optimizers. Returns what it did.
  static std::uint32_t begin(std::uint32_t site) noexcept;

  // The type's new tp_call.
  static PyObject* call(PyObject* module, PyObject* args, PyObject* keywords);

 private:
  ModuleCalls() = default;
  std::uint32_t site_of(PyObject* module) noexcept;

  bool on_ = false;
  ternaryfunc old_call_ = nullptr;
  PyTypeObject* module_type_ = nullptr;
  pybind11::object name_;
};

}  // namespace gpumemtrace::hook
