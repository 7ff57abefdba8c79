// Kernels whose launch is worth telling: they read sizes back from the device, or they stand in for
// a library that is not simulated. torch registers its kernels by name when it is loaded.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

namespace simgpu {

namespace kernels {

// Open addressing by the host stub's address. Written while a library is loaded (under the loader's
// lock), read on every launch without any lock.
struct Slot {
  std::atomic<const void*> host{nullptr};
  std::atomic<uint32_t> pattern{0};
};
inline constexpr uint32_t kSlots = 1 << 15;
extern Slot slots[kSlots];
inline uint32_t home_of(const void* host) noexcept {
  return static_cast<uint32_t>((reinterpret_cast<uintptr_t>(host) * 0x9E3779B97F4A7C15u) >> 49);
}
void count_launch(uint32_t pattern) noexcept;

}  // namespace kernels

// `device_name` is the mangled name of the kernel behind the host stub `host`.
void register_kernel(const void* host, const char* device_name) noexcept;

// Hot path: one load for a kernel that nobody watches.
inline void note_launch(const void* host) noexcept {
  for (uint32_t i = kernels::home_of(host);; i = (i + 1) % kernels::kSlots) {
    // pairs with the release store in register_kernel
    const void* found = kernels::slots[i].host.load(std::memory_order_acquire);
    if (found == nullptr) return;
    if (found == host) {
      kernels::count_launch(kernels::slots[i].pattern.load(std::memory_order_relaxed));
      return;
    }
  }
}

// Calls `visit(name, what, launches)` for each watched kind that was launched.
void for_each_watched_kernel(const std::function<void(const char*, const char*, uint64_t)>& visit);
// How many kinds were launched so far.
uint64_t watched_kernels_seen() noexcept;

}  // namespace simgpu
