// The recording session and the marks, as functions of _core. Checks and defaults live in
// gpumemtrace.capture; here only types change.
#include <pybind11/pybind11.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <system_error>

#include "capture/producer.h"
#include "capture/session.h"
#include "python/bindings.h"

namespace py = pybind11;

namespace gpumemtrace::python {
namespace {

using capture::SessionOptions;
using capture::SessionStats;

// os.fsencode: names that are not UTF-8 pass through unchanged.
std::string file_system_path(const py::object& path) {
  PyObject* bytes = nullptr;
  if (PyUnicode_FSConverter(path.ptr(), &bytes) == 0) throw py::error_already_set();
  return py::reinterpret_steal<py::bytes>(bytes);
}

py::object from_file_system(const std::string& path) {
  return py::reinterpret_steal<py::object>(
      PyUnicode_DecodeFSDefaultAndSize(path.data(), static_cast<Py_ssize_t>(path.size())));
}

// Lone surrogates become '?': a mark must not raise into the training loop.
std::string utf8(const py::str& text) {
  PyObject* bytes = PyUnicode_AsEncodedString(text.ptr(), "utf-8", "replace");
  if (bytes == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::bytes>(bytes);
}

void session_start(const py::object& path, const std::string& metadata_json, bool overwrite,
                   bool lazy, std::uint64_t ring_bytes, std::uint32_t block_timeout_ms,
                   std::uint32_t drain_interval_ms, std::uint32_t flush_interval_ms,
                   std::uint32_t time_resolution_ns, std::uint32_t device_sample_interval_ms,
                   const std::string& shared_memory_folder, std::uint64_t flight_window_ms,
                   std::uint64_t flight_bytes, std::uint64_t max_disk_bytes, bool announce) {
  const SessionOptions options{
      .path = file_system_path(path),
      .metadata_json = metadata_json,
      .overwrite = overwrite,
      .flight_window_ms = flight_window_ms,
      .flight_bytes = flight_bytes,
      .announce = announce,
      .lazy = lazy,
      .ring_bytes = ring_bytes,
      .block_timeout_ms = block_timeout_ms,
      .shared_memory_folder = shared_memory_folder,
      .drain_interval_ms = drain_interval_ms,
      .flush_interval_ms = flush_interval_ms,
      .time_resolution_ns = time_resolution_ns,
      .device_sample_interval_ms = device_sample_interval_ms,
      .max_disk_bytes = max_disk_bytes,
  };
  try {
    const py::gil_scoped_release release;
    capture::start_session(options);
  } catch (const std::system_error& error) {
    errno = error.code().value();
    PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, path.ptr());
    throw py::error_already_set();
  }
}

py::dict to_dict(const SessionStats& stats) {
  py::dict out;
  out["path"] = from_file_system(stats.path);
  out["events"] = stats.events;
  out["dropped"] = stats.dropped;
  out["skipped"] = stats.skipped;
  out["gaps"] = stats.gaps;
  out["stalls"] = stats.stalls;
  out["stalled_ns"] = stats.stalled_ns;
  out["bytes_written"] = stats.bytes_written;
  out["ring_capacity"] = stats.ring_capacity;
  out["ring_high_water"] = stats.ring_high_water;
  out["drain_cpu_ns"] = stats.drain_cpu_ns;
  out["begin_monotonic_ns"] = stats.begin_monotonic_ns;
  out["begin_wall_ns"] = stats.begin_wall_ns;
  out["error"] = stats.error.empty() ? py::object(py::none()) : py::str(stats.error);
  out["file_created"] = stats.file_created;
  py::list files;
  for (const std::string& file : stats.flight_files) files.append(from_file_system(file));
  out["flight_files"] = files;
  return out;
}

// The session's mutex is held while a stop waits for the disk: never with the GIL.
py::dict session_stop(const std::string& footer_json) {
  SessionStats stats;
  {
    const py::gil_scoped_release release;
    stats = capture::stop_session(footer_json);
  }
  return to_dict(stats);
}

py::dict session_stats() {
  SessionStats stats;
  {
    const py::gil_scoped_release release;
    stats = capture::session_stats();
  }
  return to_dict(stats);
}

py::object dump_flight(const py::object& path, bool overwrite) {
  const std::string wanted = file_system_path(path);
  std::string written;
  try {
    const py::gil_scoped_release release;
    written = capture::dump_flight(wanted, overwrite);
  } catch (const std::system_error& error) {
    errno = error.code().value();
    PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, path.ptr());
    throw py::error_already_set();
  }
  return from_file_system(written);
}

bool push(Event event) {
  capture::Ring* ring = capture::active_ring();
  return ring != nullptr && capture::push(ring, event);
}

Event device_less(Kind kind, std::uint64_t size) {
  Event event{};
  event.kind = kind;
  event.device = -1;
  event.size = size;
  return event;
}

bool push_phase(std::uint32_t path_id, std::uint32_t flags) {
  Event event = device_less(Kind::kPhase, path_id);
  event.flags = flags;
  return push(event);
}

bool push_step(std::uint64_t number, std::uint32_t flags) {
  Event event = device_less(Kind::kStep, number);
  event.flags = flags;
  return push(event);
}

bool push_mark(std::uint32_t string_id) { return push(device_less(Kind::kMark, string_id)); }

bool push_tag(std::uint64_t address, std::uint64_t size_bytes, std::uint32_t category,
              std::uint32_t string_id, std::int16_t device, std::uint32_t site) {
  Event event = device_less(Kind::kTag, size_bytes);
  event.address = address;
  event.stream = category;
  event.extra = string_id;
  event.site = site;
  event.device = device;
  return push(event);
}

}  // namespace

void register_capture(py::module_& module) {
  module.def("session_start", &session_start, py::arg("path"), py::kw_only(),
             py::arg("metadata_json"), py::arg("overwrite") = false, py::arg("lazy") = false,
             py::arg("ring_bytes") = 8 << 20, py::arg("block_timeout_ms") = 0,
             py::arg("drain_interval_ms") = 5, py::arg("flush_interval_ms") = 100,
             py::arg("time_resolution_ns") = 100, py::arg("device_sample_interval_ms") = 50,
             py::arg("shared_memory_folder") = "/dev/shm", py::arg("flight_window_ms") = 0,
             py::arg("flight_bytes") = 64 << 20, py::arg("max_disk_bytes") = 0,
             py::arg("announce") = false,
             "Begin to record. OSError: the file can't be made. RuntimeError: already recording.");
  module.def("session_stop", &session_stop, py::arg("footer_json"),
             "Drain, close the file, return the final figures; without a session only those.");
  module.def("session_stats", &session_stats);
  module.def("dump_flight", &dump_flight, py::arg("path"), py::arg("overwrite") = false,
             "Write what a flight recording holds, return the path. OSError: the file can't be "
             "written. RuntimeError: there is nothing to write.");
  module.def("session_active", &capture::session_active);
  module.def("add_metadata", &capture::add_metadata, py::arg("json"),
             py::call_guard<py::gil_scoped_release>());
  module.def(
      "define_phase",
      [](std::uint32_t parent_id, const py::str& name) {
        return capture::define_phase(parent_id, utf8(name));
      },
      py::arg("parent_id"), py::arg("name"));
  module.def(
      "define_string", [](const py::str& text) { return capture::define_string(utf8(text)); },
      py::arg("text"));
  // Each returns whether the event was taken: False without a session or when the ring is full.
  module.def("push_phase", &push_phase, py::arg("path_id"), py::arg("flags"));
  module.def("push_step", &push_step, py::arg("number"), py::arg("flags") = 0);
  module.def("push_mark", &push_mark, py::arg("string_id"));
  module.def("push_tag", &push_tag, py::arg("address"), py::arg("size_bytes"), py::arg("category"),
             py::arg("string_id"), py::arg("device"), py::arg("site") = 0);
}

}  // namespace gpumemtrace::python
