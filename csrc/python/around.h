// A function of ours around a function of torch's, in C: `begin` before it, `end` after it, whatever
// it did. A call hands its arguments on as they are, and a traceback shows no frame of ours.
//
// Not for what torch.compile traces: it doesn't look into this.
#pragma once

#include <pybind11/pybind11.h>

namespace gpumemtrace::python {

// Neither raises. begin: 0 = this call is part of what goes on, there is no end() to call.
struct Ends {
  long (*begin)() noexcept;
  void (*end)(long begun) noexcept;
};

// A callable that binds as a method where it stands in a class, and has attributes:
// functools.update_wrapper makes it look like `original`. Throws py::error_already_set.
pybind11::object make_around(pybind11::object original, Ends ends);

}  // namespace gpumemtrace::python
