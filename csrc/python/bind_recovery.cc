// What a killed process left in shared memory, as a function of _core.
#include <pybind11/pybind11.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "capture/recovery.h"
#include "python/bindings.h"

namespace py = pybind11;

namespace gpumemtrace::python {
namespace {

using capture::Recovery;
using capture::RecoveryOutcome;

const char* name_of(RecoveryOutcome outcome) {
  switch (outcome) {
    case RecoveryOutcome::kNothing:
      return "nothing";
    case RecoveryOutcome::kWriterLives:
      return "writer_lives";
    case RecoveryOutcome::kLeftAlone:
      return "left_alone";
    case RecoveryOutcome::kInFile:
      return "in_file";
    case RecoveryOutcome::kInMemory:
      return "in_memory";
  }
  return "nothing";
}

py::dict recover(const std::string& path, const std::string& segment, const std::string& folder) {
  Recovery result;
  try {
    const py::gil_scoped_release release;
    result = capture::recover(path, segment, folder);
  } catch (const std::system_error& error) {
    errno = error.code().value();
    PyErr_SetFromErrnoWithFilename(PyExc_OSError, path.c_str());
    throw py::error_already_set();
  }
  py::dict out;
  out["outcome"] = name_of(result.outcome);
  out["why"] = result.why;
  out["events"] = result.events;
  out["offset"] = result.offset;
  out["tail"] = py::bytes(reinterpret_cast<const char*>(result.tail.data()), result.tail.size());
  return out;
}

}  // namespace

void register_recovery(py::module_& module) {
  module.def("recover", &recover, py::arg("path"), py::arg("segment"),
             py::arg("folder") = capture::kSharedMemoryFolder,
             "Put behind a trace what its process, if it has ended, left in shared memory.");
}

}  // namespace gpumemtrace::python
