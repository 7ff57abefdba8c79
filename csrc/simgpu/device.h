// The simulated devices: memory in use, address space, logical clock; and what CUDA keeps per
// thread (current device, last error).
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>

#include "backing.h"
#include "config.h"
#include "cuda_api.h"
#include "placement.h"

namespace simgpu {

struct Device {
  // Guards the fields up to the blank line.
  std::mutex mutex;
  uint64_t used_bytes = 0;  // what other processes hold included
  uint64_t peak_bytes = 0;
  Backing backing;  // offset 0 is the arena's first byte
  char* arena = nullptr;
  uint64_t arena_bytes = 0;
  std::optional<Placement> placement;

  std::atomic<bool> active{false};    // has a context
  std::atomic<uint64_t> clock{0};     // work submitted to any of its streams (kept only with lag)
  std::atomic<uint64_t> finished{0};  // clock value up to which a synchronisation has waited
};

// `ordinal` is CUDA's, in [0, config().visible_count).
Device& device(int ordinal) noexcept;
bool is_device(int ordinal) noexcept;
// Device of the machine behind CUDA's ordinal, as NVML counts.
int machine_index(int ordinal) noexcept;

int current_device() noexcept;
void set_current_device(int ordinal) noexcept;

// Remembers an error for cudaGetLastError and returns it.
cudaError_t fail(cudaError_t error) noexcept;
cudaError_t take_last_error() noexcept;
cudaError_t last_error() noexcept;

// Makes the context of a device, as the first call that needs one does. Cheap once it is there.
cudaError_t activate_slowly(int ordinal) noexcept;
inline cudaError_t activate(int ordinal) noexcept {
  if (is_device(ordinal) && device(ordinal).active.load(std::memory_order_acquire)) [[likely]] {
    return cudaSuccess;  // pairs with the release store in activate_slowly
  }
  return activate_slowly(ordinal);
}

// Device memory that has no address of its own (cuMemCreate, pools): counts it, or says that there
// is not enough. The device is active.
bool charge(Device& device, uint64_t bytes) noexcept;
void refund(Device& device, uint64_t bytes) noexcept;

}  // namespace simgpu
