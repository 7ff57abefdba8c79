// compute/ for Python: whole columns in, whole columns out, the GIL released in between.
//
// Checks and defaults live in Python (gpumemtrace/records.py, gpumemtrace/analysis/); here only
// what keeps memory safe is checked.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "compute/categories.h"
#include "compute/columns.h"
#include "compute/downsample.h"
#include "compute/marks.h"
#include "compute/pairing.h"
#include "compute/totals.h"
#include "python/batch.h"
#include "python/bindings.h"

namespace gpumemtrace::python {
namespace {

namespace py = pybind11;
using namespace compute;  // NOLINT: one binding file per topic

py::dict feed_lines(LineBuilder& builder, const py::dict& columns) {
  const Batch batch(columns);
  Array<std::int64_t> requested(batch.count()), allocated(batch.count()), active(batch.count()),
      reserved(batch.count());
  Array<std::uint8_t> uncertain(batch.count());
  Array<std::int16_t> device(batch.count());
  const Lines lines{device.mutable_data(), requested.mutable_data(), allocated.mutable_data(),
                    active.mutable_data(), reserved.mutable_data(),  uncertain.mutable_data()};
  {
    const py::gil_scoped_release release;
    builder.feed(batch.view(), lines);
  }
  py::dict result;
  result["device"] = device;
  result["requested"] = requested;
  result["allocated"] = allocated;
  result["active"] = active;
  result["reserved"] = reserved;
  result["uncertain"] = uncertain;
  py::list devices;
  for (const auto& [number, state] : builder.devices()) {
    if (builder.was_fed(state)) devices.append(number);
  }
  result["devices"] = devices;
  return result;
}

void pass_lines(LineBuilder& builder, const py::dict& columns) {
  const Batch batch(columns);
  const py::gil_scoped_release release;
  builder.pass(batch.view());
}

py::dict device_states(const LineBuilder& builder) {
  py::dict result;
  for (const auto& [number, state] : builder.devices()) {
    py::dict values;
    values["requested"] = state.requested;
    values["allocated"] = state.allocated;
    values["active"] = state.allocated + state.pending;
    values["reserved"] = state.reserved;
    values["has_stats"] = state.has_stats;
    values["uncertain"] = state.uncertain;
    result[py::int_(number)] = values;
  }
  return result;
}

const char* name_of(Anomaly::Type type) {
  switch (type) {
    case Anomaly::kDoubleAlloc:
      return "double_alloc";
    case Anomaly::kUnknownFree:
      return "unknown_free";
    case Anomaly::kSizeMismatch:
      return "size_mismatch";
  }
  return "unknown";
}

py::list anomalies(const LineBuilder& builder) {
  py::list result;
  for (const Anomaly& a : builder.anomalies()) {
    result.append(py::make_tuple(name_of(a.type), a.device, a.address, a.event, a.other));
  }
  return result;
}

py::dict anomaly_counts(const LineBuilder& builder) {
  py::dict result;
  for (const auto type : {Anomaly::kDoubleAlloc, Anomaly::kUnknownFree, Anomaly::kSizeMismatch}) {
    result[name_of(type)] = builder.anomaly_count(type);
  }
  return result;
}

py::tuple feed_marks(MarkResolver& resolver, const py::dict& columns) {
  const Batch batch(columns);
  Array<std::int64_t> step(batch.count());
  Array<std::int32_t> phase(batch.count());
  auto* step_data = step.mutable_data();
  auto* phase_data = phase.mutable_data();
  {
    const py::gil_scoped_release release;
    resolver.feed(batch.view(), step_data, phase_data);
  }
  return py::make_tuple(step, phase);
}

Array<std::int64_t> feed_pairing(Pairing& pairing, const py::dict& columns) {
  const Batch batch(columns);
  Array<std::int64_t> partner(batch.count());
  auto* data = partner.mutable_data();
  {
    const py::gil_scoped_release release;
    pairing.feed(batch.view(), data);
  }
  return partner;
}

Categorizer make_categorizer(const std::vector<std::pair<int, bool>>& meanings) {
  std::vector<PhaseMeaning> by_path;
  for (const auto& [phase, is_entry] : meanings) {
    if (phase < 0 || phase >= static_cast<int>(kPhaseClasses)) {
      throw py::value_error("no such class of phases");
    }
    by_path.push_back({static_cast<PhaseClass>(phase), is_entry});
  }
  return Categorizer(std::move(by_path));
}

void feed_categorizer(Categorizer& categorizer, const py::dict& columns,
                      const Array<std::int32_t>& path) {
  const Batch batch(columns);
  if (path.ndim() != 1 || path.size() != batch.count()) {
    throw py::value_error("path has another length than kind");
  }
  const auto* paths = path.data();
  const py::gil_scoped_release release;
  categorizer.feed(batch.view(), paths);
}

py::tuple finish_categorizer(Categorizer& categorizer) {
  {
    const py::gil_scoped_release release;
    categorizer.finish();
  }
  const auto copy = [](const std::vector<std::uint8_t>& values) {
    return Array<std::uint8_t>(static_cast<py::ssize_t>(values.size()), values.data());
  };
  return py::make_tuple(copy(categorizer.categories()), copy(categorizer.rules()));
}

Downsampler make_downsampler(std::int64_t start, std::int64_t end, std::int64_t columns,
                             std::int64_t initial) {
  if (columns < 1 || columns > 1'000'000) throw py::value_error("columns must be 1 to 1,000,000");
  if (end < start) throw py::value_error("the end lies before the start");
  return {start, end, static_cast<std::size_t>(columns), initial};
}

void feed_downsampler(Downsampler& sampler, const Array<std::int64_t>& time,
                      const Array<std::int64_t>& value, const Array<std::int16_t>& device,
                      std::int16_t wanted) {
  if (time.size() != value.size() || time.size() != device.size()) {
    throw py::value_error("time, value and device must have one length");
  }
  const auto count = static_cast<std::size_t>(time.size());
  const auto *times = time.data(), *values = value.data();
  const auto* devices = device.data();
  const py::gil_scoped_release release;
  sampler.feed(count, times, values, devices, wanted);
}

Array<std::int64_t> finish_downsampler(Downsampler& sampler) {
  const auto& columns = sampler.finish();
  Array<std::int64_t> result({static_cast<py::ssize_t>(columns.size()), py::ssize_t{4}});
  auto out = result.mutable_unchecked<2>();
  for (py::ssize_t i = 0; i < out.shape(0); ++i) {
    const auto& c = columns[static_cast<std::size_t>(i)];
    out(i, 0) = c.first;
    out(i, 1) = c.min;
    out(i, 2) = c.max;
    out(i, 3) = c.last;
  }
  return result;
}

}  // namespace

void register_compute(py::module_& module) {
  py::class_<LineBuilder>(module, "LineBuilder",
                          "The lines of each device at every record; feed batches in order.")
      .def(py::init<>())
      .def("feed", &feed_lines, py::arg("columns"),
           "Return requested, allocated, active, reserved (int64), uncertain (uint8): the lines of "
           "each record's device after it; that device (int16, -1 = none); and a list of the "
           "devices that occur.")
      .def("pass_by", &pass_lines, py::arg("columns"), "Feed, but return nothing.")
      .def("copy", &LineBuilder::copy, "Return one that goes on from here by itself.")
      .def_property_readonly("events", &LineBuilder::events)
      .def_property_readonly("live_blocks", &LineBuilder::live_blocks)
      .def_property_readonly("unseen_allocs", &LineBuilder::unseen_allocs)
      .def_property_readonly("devices", &device_states)
      .def_property_readonly("anomalies", &anomalies,
                             "The first of each type: (type, device, address, event, other event).")
      .def_property_readonly("anomaly_counts", &anomaly_counts);

  py::class_<MarkResolver>(module, "MarkResolver", "The step and the phase of every record.")
      .def(py::init<std::uint32_t>(), py::arg("driving_thread"))
      .def("feed", &feed_marks, py::arg("columns"),
           "Return step (int64) and phase path id (int32, 0 = none) of each record.")
      .def(
          "copy", [](const MarkResolver& resolver) { return MarkResolver(resolver); },
          "Return one that goes on from here by itself.");

  py::class_<Pairing>(module, "Pairing", "Which free ends which alloc; feed batches in order.")
      .def(py::init<>())
      .def("feed", &feed_pairing, py::arg("columns"),
           "Return for each record the number of the alloc that it is about, -1 = none.")
      .def_property_readonly("allocs", &Pairing::allocs)
      .def_property_readonly("unborn_frees", &Pairing::unborn_frees);

  py::class_<Categorizer>(module, "Categorizer",
                          "What each alloc is for; feed batches in order, then finish once.")
      .def(py::init(&make_categorizer), py::arg("meanings"))
      .def("feed", &feed_categorizer, py::arg("columns"), py::arg("phase_path"))
      .def("finish", &finish_categorizer,
           "Return category and rule of each alloc (uint8), in the order of the trace.");

  py::class_<Downsampler>(module, "Downsampler", "First, min, max, last per pixel column (M4).")
      .def(py::init(&make_downsampler), py::arg("start"), py::arg("end"), py::arg("columns"),
           py::arg("initial") = 0)
      .def("feed", &feed_downsampler, py::arg("time"), py::arg("value"), py::arg("device"),
           py::arg("wanted"))
      .def("finish", &finish_downsampler, "Return an int64 array (columns, 4).");
}

}  // namespace gpumemtrace::python
