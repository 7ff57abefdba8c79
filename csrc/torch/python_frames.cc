#include "torch/python_frames.h"

namespace gpumemtrace::hook {

bool frames_are_readable() noexcept {
#if GPUMEMTRACE_KNOWS_FRAMES
  PyThreadState* const thread = PyThreadState_Get();
  PythonFrame found[kMostFrames];
  const std::size_t count = read_frames(thread, found);
  std::size_t place = 0;
  PyFrameObject* frame = PyThreadState_GetFrame(thread);
  bool is_right = frame != nullptr;
  while (frame != nullptr) {
    PyCodeObject* const code = PyFrame_GetCode(frame);
#if PY_VERSION_HEX >= 0x030B0000
    const int byte = PyFrame_GetLasti(frame);
    const int instruction = byte < 0 ? 0 : byte / static_cast<int>(sizeof(layout::CodeUnit));
#else
    const int instruction = frame->f_lasti < 0 ? 0 : frame->f_lasti;
#endif
    is_right = is_right && (place == kMostFrames ||
                            (place < count && found[place].code == code &&
                             found[place].instruction == static_cast<std::uint32_t>(instruction)));
    if (place < kMostFrames) ++place;
    Py_DECREF(code);
    PyFrameObject* const outer = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = outer;
  }
  return is_right && place == count;
#else
  return false;
#endif
}

}  // namespace gpumemtrace::hook
