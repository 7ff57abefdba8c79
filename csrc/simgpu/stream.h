// Streams and events as logical clocks: work is counted, not done.
//
// Completion: by default whatever was submitted is done at once, so what waits for the device
// (record_stream's deferred frees, event queries) sees an idle one, as a host that is ahead of the
// device only for a moment would. With GPUMEMTRACE_SIM_LAG=N it is done after N further submissions
// to the same device, or when somebody synchronises.
#pragma once

#include <atomic>
#include <cstdint>

#include "cuda_api.h"
#include "device.h"

namespace simgpu {

struct Capture;

// Never freed: events and captures may name a stream that was destroyed.
struct Stream {
  int device = 0;
  int priority = 0;
  unsigned flags = 0;
  std::atomic<uint64_t> submitted{0};
  std::atomic<uint64_t> clock_at_last{0};  // the device's clock at the last submission (with lag)
  std::atomic<Capture*> capture{nullptr};
};

// Handles 0, 1 and 2 are the current device's default streams.
Stream& stream_of(void* handle) noexcept;

void add_to_capture(Capture& capture) noexcept;  // capture.cc

// One piece of work. Hot path: no lock.
inline void submit(Stream& stream) noexcept {
  stream.submitted.fetch_add(1, std::memory_order_relaxed);
  if (Capture* capture = stream.capture.load(std::memory_order_relaxed)) [[unlikely]] {
    add_to_capture(*capture);
    return;
  }
  if (config().lag != 0) [[unlikely]] {
    Device& d = device(stream.device);
    stream.clock_at_last.store(d.clock.fetch_add(1, std::memory_order_relaxed) + 1,
                               std::memory_order_relaxed);
  }
}

// Whether work that was submitted when the device's clock stood at `at` is done.
bool is_done(const Device& device, uint64_t at) noexcept;
// A host that waits for the device: everything submitted so far is done.
void finish_all(Device& device) noexcept;

}  // namespace simgpu
