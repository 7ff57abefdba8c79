#include "torch/device_memory.h"

#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>

#include <algorithm>

#include "capture/producer.h"

namespace gpumemtrace::hook {
namespace {

// For as long as it lives, calls of this thread can't invalidate a graph capture under way in any
// thread.
class RelaxedCapture {
 public:
  RelaxedCapture() noexcept { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

bool read_memory(std::uint64_t& free_bytes, std::uint64_t& capacity_bytes) noexcept {
  const RelaxedCapture relaxed;
  std::size_t free = 0;
  std::size_t total = 0;
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) {
    (void)cudaGetLastError();  // or torch would report it as the error of a later call
    return false;
  }
  free_bytes = free;
  capacity_bytes = total;
  return true;
}

// On the drain thread, whose current device is nobody's concern.
bool sample(int device, std::uint64_t* used_bytes, std::uint64_t* capacity_bytes) noexcept {
  try {
    if (!c10::cuda::hasPrimaryContext(static_cast<c10::DeviceIndex>(device))) return false;
  } catch (...) {
    return false;
  }
  if (cudaSetDevice(device) != cudaSuccess) {
    (void)cudaGetLastError();
    return false;
  }
  std::uint64_t free = 0;
  if (!read_memory(free, *capacity_bytes)) return false;
  *used_bytes = *capacity_bytes - free;
  return true;
}

}  // namespace

std::uint64_t current_device_free_bytes() noexcept {
  std::uint64_t free = 0;
  std::uint64_t capacity = 0;
  return read_memory(free, capacity) ? free : 0;
}

void describe_devices(int device_count) noexcept {
  capture::DeviceProbe probe{};
  probe.device_count = std::clamp(device_count, 0, capture::kMaxDevices);
  probe.mem_info = &sample;
  for (int device = 0; device < probe.device_count; ++device) {
    char* const id = probe.pci_bus_id[device];
    if (cudaDeviceGetPCIBusId(id, sizeof(probe.pci_bus_id[0]), device) != cudaSuccess) {
      (void)cudaGetLastError();
      id[0] = '\0';
    }
  }
  capture::set_device_probe(probe);
}

}  // namespace gpumemtrace::hook
