// Names of the machine's devices that CUDA and NVML have to agree on.
#pragma once

#include <array>
#include <cstdio>

namespace simgpu {

inline std::array<unsigned char, 16> uuid_of(int machine_index) {
  return {0x67, 0x70, 0x75, 0x6d, 0x65, 0x6d, 0x40, 0x00,
          0x80, 0x00, 0x73, 0x69, 0x6d, 0x75, 0x00, static_cast<unsigned char>(machine_index)};
}

inline void pci_bus_id_of(int machine_index, char* out, size_t size) {
  std::snprintf(out, size, "0000:%02X:00.0", machine_index + 1);
}

}  // namespace simgpu
