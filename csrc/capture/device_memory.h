// How much memory of a device is in use, whoever uses it: NVML if it can be loaded, else a
// callback. Neither torch nor CUDA is needed to build this.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>

#include "capture/producer.h"

namespace gpumemtrace::capture {

struct DeviceMemory {
  std::uint64_t used_bytes = 0;  // the whole device: capacity minus free
  std::uint64_t capacity_bytes = 0;
  std::uint64_t own_bytes = 0;    // this process; 0 = unknown (in most containers)
  std::uint64_t other_bytes = 0;  // other processes, as far as NVML charges them with any
  bool others_known = false;      // it told the figure of every process

  bool operator==(const DeviceMemory&) const = default;
};

// One thread at a time. Loads NVML on the first read; never unloads it: its threads and exit
// handlers are its own business.
class DeviceMemoryReader {
 public:
  // False: the device is not in the probe, or nothing could tell. About 5 us with NVML.
  bool read(const DeviceProbe& probe, int device, DeviceMemory& out) noexcept;

 private:
  struct Nvml;
  const Nvml* nvml() noexcept;
  bool read_nvml(const DeviceProbe& probe, int device, DeviceMemory& out) noexcept;
  static void read_processes(const Nvml& library, void* handle, DeviceMemory& out) noexcept;

  bool nvml_tried_ = false;
  const Nvml* nvml_ = nullptr;
  std::array<void*, kMaxDevices> handles_{};
  std::array<bool, kMaxDevices> handle_tried_{};
};

}  // namespace gpumemtrace::capture
