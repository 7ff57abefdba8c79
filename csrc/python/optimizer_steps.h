// The optimizers that are within step(), and those that are known.
#pragma once

#include <pybind11/pybind11.h>

#include <unordered_map>
#include <vector>

namespace gpumemtrace::python {

// All under the GIL. Throws py::error_already_set for an exotic optimizer, std::bad_alloc.
class OptimizerSteps {
 public:
  struct Step {
    bool begun;  // it is a phase
    bool news;   // its first step, or the first with a new group
  };
  enum class Place { kNone, kInner, kOuter };  // kInner: the step of one that wraps it goes on
  struct Ended {
    Place place;
    Step step;
  };

  // A step begins in this thread. Returns whether it has news.
  bool begin(PyObject* optimizer, bool begun);
  // It returned. Place::kNone: its begin was not told.
  Ended end(PyObject* optimizer);
  void clear();

 private:
  struct Going {
    unsigned long thread;
    PyObject* optimizer;  // only compared
    Step step;
  };
  struct Known {
    pybind11::weakref weak;
    Py_ssize_t groups;
  };
  Py_ssize_t groups_of(PyObject* optimizer) const;
  void remember(PyObject* optimizer);
  bool is_news(PyObject* optimizer) const;

  const pybind11::handle param_groups_ = PyUnicode_InternFromString("param_groups");
  std::vector<Going> going_;
  std::unordered_map<PyObject*, Known> known_;
};

}  // namespace gpumemtrace::python
