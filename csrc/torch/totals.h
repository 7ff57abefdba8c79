// What the native allocator itself counts, cut down to what events carry.
#pragma once

#include <cstdint>

#include "torch/torch_compat.h"

namespace gpumemtrace::hook {

// One device at one instant, bytes except where a name says otherwise.
struct Totals {
  std::uint64_t requested = 0;
  std::uint64_t allocated = 0;
  std::uint64_t active = 0;
  std::uint64_t reserved = 0;
  std::uint64_t retries = 0;      // times the cache was flushed to serve a request
  std::uint64_t live_blocks = 0;  // handed out and not yet given back

  // Given back, but still in use on another stream.
  std::uint64_t pending() const noexcept { return active - allocated; }
};

// Takes the device's allocator lock for some 35 ns. False: the allocator refused, as it does for a
// device that is not set up; `out` is then untouched.
inline bool read_totals(CUDAAllocator& native, c10::DeviceIndex device, Totals& out) noexcept {
  try {
    const auto stats = native.getDeviceStats(device);
    const auto now = [](const auto& counters) {
      return static_cast<std::uint64_t>(
          counters[0].current);  // [0] = small and large pool together
    };
    out.requested = now(stats.requested_bytes);
    out.allocated = now(stats.allocated_bytes);
    out.active = now(stats.active_bytes);
    out.reserved = now(stats.reserved_bytes);
    out.retries = static_cast<std::uint64_t>(stats.num_alloc_retries);
    out.live_blocks = now(stats.allocation);
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace gpumemtrace::hook
