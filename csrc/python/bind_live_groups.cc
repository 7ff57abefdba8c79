// compute/live_groups.h for Python; used by gpumemtrace/analysis/live_set.py, which has the checks.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "compute/live_groups.h"
#include "python/batch.h"
#include "python/bindings.h"

namespace gpumemtrace::python {
namespace {

namespace py = pybind11;
using compute::kCategories;
using compute::LiveGroups;

// With the categories that it reads, which Python may let go of.
class Groups {
 public:
  Groups(Array<std::uint8_t> categories, std::int32_t phases, bool of_requests)
      : categories_(std::move(categories)),
        phases_(checked(phases)),
        groups_(categories_.data(), static_cast<std::size_t>(categories_.size()), phases_,
                of_requests) {}

  // For each of `rows`, ascending, the sums of `devices` after it.
  py::tuple feed(const py::dict& columns, const Array<std::int64_t>& step,
                 const Array<std::int32_t>& phase, const Array<std::int64_t>& rows,
                 const Array<std::int16_t>& devices) {
    const Batch batch(columns);
    if (step.size() != batch.count() || phase.size() != batch.count()) {
      throw py::value_error("step or phase has another length than kind");
    }
    if (rows.size() != devices.size()) throw py::value_error("rows and devices differ in length");
    std::vector<LiveGroups::ReadOut> read_outs;
    for (py::ssize_t i = 0; i < rows.size(); ++i) {
      if (rows.at(i) < 0 || rows.at(i) >= batch.count()) throw py::value_error("no such row");
      if (i > 0 && rows.at(i) < rows.at(i - 1)) throw py::value_error("rows must ascend");
      read_outs.push_back({static_cast<std::size_t>(rows.at(i)), devices.at(i)});
    }
    const auto count = rows.size();
    Array<std::int64_t> by_category({count, static_cast<py::ssize_t>(kCategories)});
    Array<std::int64_t> by_phase({count, static_cast<py::ssize_t>(phases_) + 1});
    auto *category_data = by_category.mutable_data(), *phase_data = by_phase.mutable_data();
    const auto* steps = step.data();
    const auto* phases = phase.data();
    const auto width = static_cast<std::size_t>(phases_) + 1;
    {
      const py::gil_scoped_release release;
      groups_.feed(batch.view(), steps, phases, read_outs,
                   [&](std::size_t which, const LiveGroups::Sums& sums) {
                     std::copy(sums.by_category.begin(), sums.by_category.end(),
                               category_data + which * kCategories);
                     std::copy(sums.by_phase.begin(), sums.by_phase.end(),
                               phase_data + which * width);
                   });
    }
    return py::make_tuple(by_category, by_phase);
  }

  // (without a category at all, with half of it), by category.
  py::tuple highest_if(std::int16_t device) {
    const auto& sums = groups_.sums(device);
    const auto as_array = [](const auto& values) {
      return Array<std::int64_t>(static_cast<py::ssize_t>(kCategories), values.data());
    };
    return py::make_tuple(as_array(sums.highest_without), as_array(sums.highest_with_half));
  }

  py::dict live(std::int16_t device) const {
    std::vector<const LiveGroups::Block*> found;
    for (const auto& block : groups_.blocks()) {
      if (block.is_live && block.device == device) found.push_back(&block);
    }
    std::sort(found.begin(), found.end(),
              [](const auto* a, const auto* b) { return a->number < b->number; });
    py::dict result;
    result["number"] = column<std::int64_t>(found, [](const auto& b) { return b.number; });
    result["address"] = column<std::uint64_t>(found, [](const auto& b) { return b.address; });
    result["requested_bytes"] =
        column<std::int64_t>(found, [](const auto& b) { return b.requested; });
    result["allocated_bytes"] =
        column<std::int64_t>(found, [](const auto& b) { return b.allocated; });
    result["birth_step"] = column<std::int64_t>(found, [](const auto& b) { return b.birth_step; });
    result["birth_phase"] =
        column<std::int32_t>(found, [](const auto& b) { return b.birth_phase; });
    result["category_id"] = column<std::uint8_t>(found, [](const auto& b) { return b.category; });
    result["is_from_before"] = column<bool>(found, [](const auto& b) { return b.is_from_before; });
    return result;
  }

 private:
  static std::int32_t checked(std::int32_t phases) {
    if (phases < 0 || phases > (1 << 20)) throw py::value_error("no such number of phases");
    return phases;
  }

  template <class T, class Field>
  static Array<T> column(const std::vector<const LiveGroups::Block*>& blocks, Field field) {
    Array<T> result(static_cast<py::ssize_t>(blocks.size()));
    auto* out = result.mutable_data();
    for (const auto* block : blocks) *out++ = field(*block);
    return result;
  }

  Array<std::uint8_t> categories_;
  std::int32_t phases_;
  LiveGroups groups_;
};

}  // namespace

void register_live_groups(py::module_& module) {
  py::class_<Groups>(module, "LiveGroups",
                     "What is in use, by category and phase of birth; feed batches in order.")
      .def(py::init<Array<std::uint8_t>, std::int32_t, bool>(), py::arg("category_id"),
           py::arg("phases"), py::arg("of_requests") = false)
      .def("feed", &Groups::feed, py::arg("columns"), py::arg("step"), py::arg("phase"),
           py::arg("rows"), py::arg("devices"),
           "Return the bytes by category and by phase (none first) of each device after each row: "
           "int64 arrays (rows, 8) and (rows, phases + 1).")
      .def("highest_if", &Groups::highest_if, py::arg("device"))
      .def("live", &Groups::live, py::arg("device"),
           "Return the columns of the blocks that are in use on a device now, in order of birth.");
}

}  // namespace gpumemtrace::python
