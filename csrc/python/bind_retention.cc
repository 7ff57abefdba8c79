// compute/retention.h for Python: gpumemtrace/analysis/retention.py.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <algorithm>
#include <cstdint>

#include "compute/retention.h"
#include "python/batch.h"
#include "python/bindings.h"

namespace gpumemtrace::python {
namespace {

namespace py = pybind11;
using compute::RetentionLedger;

void feed_retention(RetentionLedger& ledger, const py::dict& columns,
                    const Array<std::int32_t>& phase, const Array<std::uint8_t>& category) {
  const Batch batch(columns);
  if (phase.size() != batch.count()) {
    throw py::value_error("phase has another length than the columns");
  }
  const auto* phases = phase.data();
  const auto* categories = category.data();
  const auto count = static_cast<std::size_t>(category.size());
  const py::gil_scoped_release release;
  ledger.feed(batch.view(), phases, categories, count);
}

py::list retention_groups(const RetentionLedger& ledger) {
  py::list result;
  for (const auto& group : ledger.groups()) {
    result.append(py::make_tuple(group.device, group.phase, group.category));
  }
  return result;
}

Array<std::int64_t> retention_freed(const RetentionLedger& ledger) {
  Array<std::int64_t> result({static_cast<py::ssize_t>(ledger.groups().size()),
                              static_cast<py::ssize_t>(RetentionLedger::kAgeBins)});
  auto* out = result.mutable_data();
  for (const auto& group : ledger.groups()) {
    out = std::copy(group.freed_bytes.begin(), group.freed_bytes.end(), out);
  }
  return result;
}

py::tuple retention_rows(const RetentionLedger& ledger) {
  const auto groups = static_cast<py::ssize_t>(ledger.groups().size());
  const auto count = static_cast<py::ssize_t>(ledger.rows().size());
  Array<std::int64_t> mark(count);
  std::copy(ledger.row_mark().begin(), ledger.row_mark().end(), mark.mutable_data());
  Array<std::int64_t> bytes({count, groups});
  auto* out = bytes.mutable_data();
  for (const auto& row : ledger.rows()) {
    std::fill(std::copy(row.begin(), row.end(), out), out + groups, std::int64_t{0});
    out += groups;
  }
  return py::make_tuple(mark, bytes);
}

py::dict retention_live(const RetentionLedger& ledger) {
  const auto count = static_cast<py::ssize_t>(ledger.live().size());
  Array<std::int64_t> alloc(count), size(count), birth(count);
  Array<std::uint32_t> group(count), thread(count);
  py::ssize_t at = 0;
  ledger.live().for_each([&](const auto& slot) {
    alloc.mutable_at(at) = slot.value.number;
    size.mutable_at(at) = slot.value.size;
    birth.mutable_at(at) = slot.value.birth;
    group.mutable_at(at) = slot.value.group;
    thread.mutable_at(at) = slot.value.thread;
    ++at;
  });
  py::dict result;
  result["alloc"] = alloc;
  result["size_bytes"] = size;
  result["birth"] = birth;
  result["group"] = group;
  result["thread"] = thread;
  return result;
}

}  // namespace

void register_retention(py::module_& module) {
  py::class_<RetentionLedger>(module, "RetentionLedger",
                              "Live bytes at each step mark by group: device, phase, category.")
      .def(py::init<>())
      .def("feed", &feed_retention, py::arg("columns"), py::arg("phase"), py::arg("category"),
           "Take records with their phase (int32) and the category (uint8) of each alloc in them.")
      .def_property_readonly("allocs", &RetentionLedger::allocs)
      .def_property_readonly("step_marks", &RetentionLedger::step_marks)
      .def("groups", &retention_groups, "Return (device, phase, category) of each group.")
      .def(
          "freed", &retention_freed,
          "Return int64 bytes (groups, bins) that died at an age of [2^bin, 2^(bin+1)) step marks.")
      .def("rows", &retention_rows,
           "Return the step marks told (int64) and the live bytes then (int64: marks, groups).")
      .def("live", &retention_live,
           "Return columns of the live blocks: alloc, size_bytes, birth (in step marks), group, "
           "thread.");
}

}  // namespace gpumemtrace::python
