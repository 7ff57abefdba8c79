// Any bytes as a pickle: plain data or an error, and nothing is run.
#include <pybind11/embed.h>

#include <cstddef>
#include <cstdint>

#include "python/bindings.h"

namespace py = pybind11;

PYBIND11_EMBEDDED_MODULE(plain, module) { gpumemtrace::python::register_plain_pickle(module); }

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size_bytes) {
  static const auto* const interpreter = new py::scoped_interpreter;  // until the process ends
  static const auto* const load =
      new py::object(py::module_::import("plain").attr("load_plain_pickle"));
  static_cast<void>(interpreter);
  try {
    const auto size = static_cast<py::ssize_t>(size_bytes);
    (*load)(py::memoryview::from_memory(data, size));
  } catch (const py::error_already_set& error) {
    if (!error.matches(PyExc_RuntimeError) && !error.matches(PyExc_UnicodeDecodeError)) throw;
  }
  return 0;
}
