// The Python frames of this thread, read where they lie.
//
// PyTorch's operators let go of the GIL before they allocate, so CPython's own functions (which count
// references and make frame objects) may not be called here, and taking the GIL for each allocation
// would stall the program. But a thread's frames don't change while it is in an operator: it alone
// pushes and pops them. So they are read as they are. CPython keeps their layout within a minor
// version, for which this is compiled; frames_are_readable() also compares what comes out with what
// CPython says.
#pragma once

#include <Python.h>
#include <frameobject.h>  // not in Python.h before 3.11

#include <cstddef>
#include <cstdint>

namespace gpumemtrace::hook {

// One function on the stack, and where it is: an index into its bytecode, in instructions.
struct PythonFrame {
  PyCodeObject* code;
  std::uint32_t instruction;
};

inline constexpr std::size_t kMostFrames = 128;

#if PY_VERSION_HEX >= 0x030F0000 || defined(Py_GIL_DISABLED)
#define GPUMEMTRACE_KNOWS_FRAMES 0
#else
#define GPUMEMTRACE_KNOWS_FRAMES 1
#endif

namespace layout {

using CodeUnit = std::uint16_t;  // an instruction; CPython's own name is private since 3.13

// The front of CPython's own structures, each as in its Include/internal/pycore_frame.h.
#if PY_VERSION_HEX >= 0x030E0000
struct Frame {
  std::uintptr_t executable;  // tagged in the two lowest bits
  Frame* previous;
  std::uintptr_t function;
  void *globals, *builtins, *locals, *frame_object;
  CodeUnit* instruction;
  void* stack_pointer;
  std::uint16_t return_offset;
  char owner;
};
#elif PY_VERSION_HEX >= 0x030D0000
struct Frame {
  PyObject* executable;
  Frame* previous;
  void *function, *globals, *builtins, *locals, *frame_object;
  CodeUnit* instruction;
  int stack_top;
  std::uint16_t return_offset;
  char owner;
};
#elif PY_VERSION_HEX >= 0x030C0000
struct Frame {
  PyCodeObject* executable;
  Frame* previous;
  void *function, *globals, *builtins, *locals, *frame_object;
  CodeUnit* instruction;
  int stack_top;
  std::uint16_t return_offset;
  char owner;
};
#elif PY_VERSION_HEX >= 0x030B0000
struct Frame {
  void *function, *globals, *builtins, *locals;
  PyCodeObject* executable;
  void* frame_object;
  Frame* previous;
  CodeUnit* instruction;
  int stack_top;
  bool is_entry;
  char owner;
};
#else
using Frame = PyFrameObject;  // public in these
#endif

#if GPUMEMTRACE_KNOWS_FRAMES
inline const Frame* innermost(const PyThreadState* thread) noexcept {
#if PY_VERSION_HEX >= 0x030D0000
  return reinterpret_cast<const Frame*>(thread->current_frame);
#elif PY_VERSION_HEX >= 0x030B0000
  return reinterpret_cast<const Frame*>(thread->cframe->current_frame);
#else
  return thread->frame;
#endif
}

inline const Frame* caller(const Frame* frame) noexcept {
#if PY_VERSION_HEX >= 0x030B0000
  return frame->previous;
#else
  return frame->f_back;
#endif
}

// False: none of Python's functions (where C code has called the interpreter).
inline bool read(const Frame* frame, PythonFrame& out) noexcept {
#if PY_VERSION_HEX >= 0x030B0000
#if PY_VERSION_HEX >= 0x030C0000
  constexpr char kOwnedByInterpreter = 3;
  if (frame->owner >= kOwnedByInterpreter) return false;
#endif
#if PY_VERSION_HEX >= 0x030E0000
  auto* const executable = reinterpret_cast<PyObject*>(frame->executable & ~std::uintptr_t{3});
#else
  auto* const executable = reinterpret_cast<PyObject*>(frame->executable);
#endif
  if (executable == nullptr || !PyCode_Check(executable)) return false;
  out.code = reinterpret_cast<PyCodeObject*>(executable);
  const auto* const first = reinterpret_cast<const CodeUnit*>(out.code->co_code_adaptive);
  const std::ptrdiff_t instruction = frame->instruction - first;
#else
  out.code = frame->f_code;
  const std::ptrdiff_t instruction = frame->f_lasti;
#endif
  out.instruction = instruction < 0 ? 0 : static_cast<std::uint32_t>(instruction);
  return true;
}
#endif

}  // namespace layout

// Leaves the frames of `thread`, which is this one, in `out`, innermost first; of more than
// kMostFrames the innermost. Returns how many. The GIL is not needed.
inline std::size_t read_frames(const PyThreadState* thread, PythonFrame* out) noexcept {
  std::size_t count = 0;
#if GPUMEMTRACE_KNOWS_FRAMES
  for (const layout::Frame* frame = layout::innermost(thread);
       frame != nullptr && count < kMostFrames; frame = layout::caller(frame)) {
    if (layout::read(frame, out[count])) ++count;
  }
#endif
  return count;
}

// Whether read_frames() says of this thread's frames what CPython does. With the GIL.
bool frames_are_readable() noexcept;

}  // namespace gpumemtrace::hook
