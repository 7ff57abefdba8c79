// compute/line_gaps.h for Python; use gpumemtrace.analysis.gaps.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <array>
#include <cstdint>

#include "compute/line_gaps.h"
#include "python/batch.h"
#include "python/bindings.h"

namespace gpumemtrace::python {
namespace {

namespace py = pybind11;
using namespace compute;  // NOLINT: one binding file per topic

constexpr std::array<const char*, kQuantities> kQuantityNames = {"requested",
                                                                 "allocated",
                                                                 "active",
                                                                 "reserved",
                                                                 "device_used",
                                                                 "rounding",
                                                                 "pending",
                                                                 "cached",
                                                                 "outside",
                                                                 "device_free",
                                                                 "device_free_with_cached"};
constexpr std::array kPairNames = {"requested>allocated",  "allocated>active",
                                   "active>reserved",      "reserved>own_process",
                                   "reserved>device_used", "device_used>capacity"};
constexpr std::array kReasonNames = {"in_call",  "events_lost", "threads",    "sampling_lag",
                                     "counters", "expandable",  "unexplained"};

template <class T>
Array<T> column_of(const py::dict& columns, const char* name, const Batch& batch) {
  auto array = Array<T>::ensure(columns[name]);
  if (!array || array.ndim() != 1 || array.size() != batch.count()) {
    throw py::value_error(std::string("column ") + name + " has another length than kind");
  }
  return array;
}

void feed(LineGaps& gaps, const py::dict& columns, const py::dict& lines,
          std::int64_t first_event) {
  const Batch batch(columns);
  auto requested = column_of<std::int64_t>(lines, "requested", batch);
  auto allocated = column_of<std::int64_t>(lines, "allocated", batch);
  auto active = column_of<std::int64_t>(lines, "active", batch);
  auto reserved = column_of<std::int64_t>(lines, "reserved", batch);
  auto uncertain = column_of<std::uint8_t>(lines, "uncertain", batch);
  auto device = column_of<std::int16_t>(lines, "device", batch);
  const auto time_ns = column_of<std::int64_t>(columns, "time_ns", batch);
  const auto step = column_of<std::int64_t>(lines, "step", batch);
  const auto path = column_of<std::int32_t>(lines, "phase_path", batch);
  const Lines view{device.mutable_data(), requested.mutable_data(), allocated.mutable_data(),
                   active.mutable_data(), reserved.mutable_data(),  uncertain.mutable_data()};
  const LineGaps::Where where{time_ns.data(), step.data(), path.data(), first_event};
  const py::gil_scoped_release release;
  gaps.feed(batch.view(), view, where);
}

py::dict as_dict(const Instant& when) {
  py::dict result;
  result["time_ns"] = when.time_ns;
  result["event"] = when.event;
  result["step"] = when.step;
  result["phase_path"] = when.path;
  return result;
}

py::dict as_dict(const LinesAt& lines) {
  py::dict result;
  result["requested"] = lines.requested;
  result["allocated"] = lines.allocated;
  result["active"] = lines.active;
  result["reserved"] = lines.reserved;
  result["device_used"] = lines.device_used;
  result["outside"] = lines.outside;
  result["others"] = lines.others;
  result["unattributed"] = lines.unattributed;
  result["capacity"] = lines.capacity;
  return result;
}

py::dict as_dict(const LineGaps::Extremes& extremes) {
  py::dict result;
  for (std::size_t i = 0; i < kQuantities; ++i) {
    if (!extremes[i].found) continue;
    result[kQuantityNames[i]] =
        py::make_tuple(extremes[i].value, as_dict(extremes[i].when), as_dict(extremes[i].lines));
  }
  return result;
}

py::list as_list(const LineGaps::Device& state) {
  py::list result;
  for (const auto& [key, found] : state.breaks) {
    py::list first;
    for (const auto& where : found.first) {
      first.append(py::make_tuple(as_dict(where.when), where.lower, where.upper));
    }
    result.append(py::make_tuple(kPairNames[key.first], kReasonNames[key.second], found.records,
                                 found.most_bytes, first));
  }
  return result;
}

py::dict devices(const LineGaps& gaps) {
  py::dict result;
  for (const auto& [number, state] : gaps.devices()) {
    py::dict paths;
    for (const auto& [path, extremes] : state.paths) paths[py::int_(path)] = as_dict(extremes);
    py::list outside;
    for (const auto& change : state.outside) {
      outside.append(
          py::make_tuple(as_dict(change.before), as_dict(change.when), as_dict(change.lines)));
    }
    py::dict entry;
    entry["now"] = as_dict(state.now);
    entry["own_is_known"] = state.sample.own >= 0;
    entry["run"] = as_dict(state.run);
    entry["paths"] = paths;
    entry["breaks"] = as_list(state);
    entry["outside"] = outside;
    result[py::int_(number)] = entry;
  }
  return result;
}

}  // namespace

void register_line_gaps(py::module_& module) {
  py::class_<LineGaps>(module, "LineGaps",
                       "The gaps between the lines of each device; feed batches in order.")
      .def(py::init<>())
      .def("begin", &LineGaps::begin, py::arg("device"), py::arg("requested"), py::arg("allocated"),
           py::arg("active"), py::arg("reserved"))
      .def("feed", &feed, py::arg("columns"), py::arg("lines"), py::arg("first_event"))
      .def("pass_time", &LineGaps::pass_time, py::arg("device"), py::arg("time_ns"))
      .def("finish", &LineGaps::finish)
      .def_property_readonly("devices", &devices);
}

}  // namespace gpumemtrace::python
