// What the driver says about the devices' memory. Never makes a CUDA context: a context on a device
// that the program doesn't use costs hundreds of MiB there.
#pragma once

#include <cstdint>

namespace gpumemtrace::hook {

// 0 when the driver doesn't say. For the calling thread's current device, which must be in use.
std::uint64_t current_device_free_bytes() noexcept;

// Tells capture which devices there are and how to sample them. Call when CUDA is up.
void describe_devices(int device_count) noexcept;

}  // namespace gpumemtrace::hook
