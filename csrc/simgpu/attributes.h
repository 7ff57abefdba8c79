#pragma once

namespace simgpu {

// cudaDeviceGetAttribute's and cuDeviceGetAttribute's answer (the two share their numbers); 0 for a
// number that no driver of 2026 knows. `ordinal` is a device.
int attribute_of(int attribute, int ordinal) noexcept;

}  // namespace simgpu
