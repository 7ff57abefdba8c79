// cudaMalloc and its kin, pinned host memory, and how much is free.

#include <sys/mman.h>

#include <algorithm>

#include "capture.h"
#include "cuda_api.h"
#include "device.h"
#include "regions.h"

namespace simgpu {
namespace {

cudaError_t allocate(void** out, size_t bytes) {
  *out = nullptr;
  if (const cudaError_t error = activate(current_device()); error != cudaSuccess) return error;
  if (const cudaError_t error = refuse_while_capturing(); error != cudaSuccess) return error;
  if (bytes == 0) return cudaSuccess;
  const int ordinal = current_device();
  Device& d = device(ordinal);
  Placement::Piece piece;
  {
    const std::lock_guard lock(d.mutex);
    const uint64_t available = config().memory_bytes - d.used_bytes;
    if (bytes <= config().memory_bytes) piece = d.placement->allocate(bytes);
    if (piece.address != 0 && piece.used > available) {
      d.placement->free(piece.address);
      piece.address = 0;
    }
    if (piece.address == 0) return fail(cudaErrorMemoryAllocation);
    d.used_bytes += piece.used;
    d.peak_bytes = std::max(d.peak_bytes, d.used_bytes);
  }
  add_region({piece.address, bytes, ordinal, RegionKind::kDevice});
  *out = reinterpret_cast<void*>(piece.address);
  return cudaSuccess;
}

cudaError_t release(void* address) {
  if (const cudaError_t error = activate(current_device()); error != cudaSuccess) return error;
  if (const cudaError_t error = refuse_while_capturing(); error != cudaSuccess) return error;
  if (address == nullptr) return cudaSuccess;
  const uint64_t base = reinterpret_cast<uintptr_t>(address);
  const auto region = remove_region(base, RegionKind::kDevice);
  if (!region) return fail(cudaErrorInvalidValue);
  Device& d = device(region->device);
  const std::lock_guard lock(d.mutex);
  d.finished.store(d.clock.load(std::memory_order_relaxed), std::memory_order_relaxed);
  d.used_bytes -= d.placement->free(base);
  // A piece that shares its page with others keeps it.
  if (region->size > kSmallLimit) {
    d.backing.discard(base - reinterpret_cast<uintptr_t>(d.arena), round_up(region->size, kPage));
  }
  return cudaSuccess;
}

cudaError_t allocate_host(void** out, size_t bytes) {
  const size_t size = std::max<size_t>(bytes, 1);
  void* address = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) {
    *out = nullptr;
    return fail(cudaErrorMemoryAllocation);
  }
  add_region({reinterpret_cast<uintptr_t>(address), size, current_device(), RegionKind::kHost});
  *out = address;
  return cudaSuccess;
}

}  // namespace
}  // namespace simgpu

using namespace simgpu;

cudaError_t cudaMalloc(void** out, size_t bytes) { return allocate(out, bytes); }

cudaError_t cudaMallocManaged(void** out, size_t bytes, unsigned int) {
  return allocate(out, bytes);
}

// Waits for the device, as the real one does.
cudaError_t cudaFree(void* address) { return release(address); }

cudaError_t cudaHostAlloc(void** out, size_t bytes, unsigned int) {
  return allocate_host(out, bytes);
}

cudaError_t cudaMallocHost(void** out, size_t bytes) { return allocate_host(out, bytes); }

cudaError_t cudaFreeHost(void* address) {
  if (address == nullptr) return cudaSuccess;
  const auto region = remove_region(reinterpret_cast<uintptr_t>(address), RegionKind::kHost);
  if (!region) return fail(cudaErrorInvalidValue);
  munmap(address, region->size);
  return cudaSuccess;
}

cudaError_t cudaHostRegister(void* address, size_t bytes, unsigned int) {
  if (address == nullptr || bytes == 0) return fail(cudaErrorInvalidValue);
  const auto known = find_region(address);
  if (known && known->base == reinterpret_cast<uintptr_t>(address)) {
    return fail(cudaErrorHostMemoryAlreadyRegistered);
  }
  add_region(
      {reinterpret_cast<uintptr_t>(address), bytes, current_device(), RegionKind::kRegistered});
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* address) {
  const auto region = remove_region(reinterpret_cast<uintptr_t>(address), RegionKind::kRegistered);
  return region ? cudaSuccess : fail(cudaErrorHostMemoryNotRegistered);
}

cudaError_t cudaHostGetDevicePointer(void** on_device, void* on_host, unsigned int) {
  *on_device = on_host;
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  if (const cudaError_t error = activate(current_device()); error != cudaSuccess) return error;
  Device& d = device(current_device());
  const std::lock_guard lock(d.mutex);
  *total_bytes = config().memory_bytes;
  *free_bytes = config().memory_bytes - d.used_bytes;
  return cudaSuccess;
}
