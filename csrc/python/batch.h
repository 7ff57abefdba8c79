// Columns by name out of a Python dict, as compute/ takes them.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <string>

#include "compute/columns.h"

namespace gpumemtrace::python {

template <class T>
using Array = pybind11::array_t<T, pybind11::array::c_style | pybind11::array::forcecast>;

// Holds the arrays that it points into. Wrong types and lengths are Python errors.
class Batch {
 public:
  explicit Batch(const pybind11::dict& columns) : dict_(columns) {
    view_.count = static_cast<std::size_t>(pybind11::len(columns["kind"]));
    view_.kind = take<std::uint16_t>("kind");
    view_.device = take<std::int16_t>("device");
    view_.thread = take<std::uint32_t>("thread");
    view_.flags = take<std::uint32_t>("flags");
    view_.address = take<std::uint64_t>("address");
    view_.size = take<std::int64_t>("size_bytes");
    view_.stream = take<std::uint64_t>("stream");
    view_.extra = take<std::uint64_t>("extra");
  }

  const compute::Columns& view() const { return view_; }
  pybind11::ssize_t count() const { return static_cast<pybind11::ssize_t>(view_.count); }

 private:
  template <class T>
  const T* take(const char* name) {
    auto array = Array<T>::ensure(dict_[name]);
    if (!array) {
      throw pybind11::type_error(std::string("column ") + name + " is not an array of numbers");
    }
    if (array.ndim() != 1 || static_cast<std::size_t>(array.size()) != view_.count) {
      throw pybind11::value_error(std::string("column ") + name + " has another length than kind");
    }
    held_.append(array);
    return array.data();
  }

  pybind11::dict dict_;
  pybind11::list held_;
  compute::Columns view_;
};

}  // namespace gpumemtrace::python
