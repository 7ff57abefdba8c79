// Which addresses the simulation has handed out: the answer to "whose pointer is this?".
#pragma once

#include <cstdint>
#include <optional>

namespace simgpu {

enum class RegionKind : uint8_t {
  kDevice,      // cudaMalloc
  kPool,        // cudaMallocAsync
  kHost,        // cudaHostAlloc
  kRegistered,  // cudaHostRegister: the user's own memory
  kVirtual,     // cuMemAddressReserve
  kImported,    // another process's memory, opened by handle
};

struct Region {
  uint64_t base = 0;
  uint64_t size = 0;
  int device = 0;
  RegionKind kind = RegionKind::kDevice;
};

constexpr bool is_device_memory(RegionKind kind) {
  return kind != RegionKind::kHost && kind != RegionKind::kRegistered;
}

// Thread-safe. Regions never overlap, except that registered host memory may.
void add_region(const Region& region) noexcept;
// Takes out the region of `kind` that starts at `base`.
std::optional<Region> remove_region(uint64_t base, RegionKind kind) noexcept;
std::optional<Region> find_region(const void* address) noexcept;
// A virtual range belongs to the device of the memory mapped into it last.
void set_region_device(uint64_t base, int device) noexcept;

}  // namespace simgpu
