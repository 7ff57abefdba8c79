#include "python/optimizer_steps.h"

#include <algorithm>

namespace py = pybind11;

namespace gpumemtrace::python {

bool OptimizerSteps::begin(PyObject* optimizer, bool begun) {
  const unsigned long thread = PyThread_get_thread_ident();
  if (begun) {  // what still goes on here has raised
    const auto is_here = [thread](const Going& going) { return going.thread == thread; };
    going_.erase(std::remove_if(going_.begin(), going_.end(), is_here), going_.end());
  }
  going_.push_back({thread, optimizer, {begun, true}});
  return going_.back().step.news = is_news(optimizer);
}

OptimizerSteps::Ended OptimizerSteps::end(PyObject* optimizer) {
  const unsigned long thread = PyThread_get_thread_ident();
  const auto is_here = [thread](const Going& going) { return going.thread == thread; };
  const auto last = std::find_if(going_.rbegin(), going_.rend(), is_here);
  if (last == going_.rend() || last->optimizer != optimizer) return {Place::kNone, {}};
  const Step step = last->step;
  going_.erase(last.base() - 1);
  const bool is_inner = std::any_of(going_.begin(), going_.end(), is_here);
  if (step.news) remember(optimizer);
  return {is_inner ? Place::kInner : Place::kOuter, step};
}

void OptimizerSteps::remember(PyObject* optimizer) {
  try {
    known_.insert_or_assign(optimizer,
                            Known{py::weakref(py::handle(optimizer)), groups_of(optimizer)});
  } catch (const py::error_already_set&) {  // exotic: it has news each time
  }
}

void OptimizerSteps::clear() {
  going_.clear();
  known_.clear();
}

Py_ssize_t OptimizerSteps::groups_of(PyObject* optimizer) const {
  const py::object groups = py::getattr(optimizer, param_groups_);
  if (PyList_CheckExact(groups.ptr()) != 0) return PyList_GET_SIZE(groups.ptr());
  return static_cast<Py_ssize_t>(py::len(groups));
}

bool OptimizerSteps::is_news(PyObject* optimizer) const {
  const auto known = known_.find(optimizer);
  if (known == known_.end() || known->second.groups != groups_of(optimizer)) return true;
  const auto alive =
      py::reinterpret_steal<py::object>(PyObject_CallNoArgs(known->second.weak.ptr()));
  return alive.ptr() != optimizer;
}

}  // namespace gpumemtrace::python
