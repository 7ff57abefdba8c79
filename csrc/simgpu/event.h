#pragma once

#include <ctime>
#include <mutex>

#include "capture.h"

namespace simgpu {

struct Event {
  std::mutex mutex;  // guards the rest
  unsigned flags = 0;
  Stream* stream = nullptr;  // null until it is recorded
  uint64_t at = 0;           // the device's clock then
  timespec time = {};
  Capture* capture = nullptr;  // recorded into a capture: not a moment but a place in a graph
  Progress progress;
};

}  // namespace simgpu
