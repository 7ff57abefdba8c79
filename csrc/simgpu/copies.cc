// Copies and fills. What goes to the device is kept up to config().content_bytes a copy, so that a
// simulated model of any size stays out of the host's memory; contents.h says what comes back.

#include <algorithm>
#include <cstring>

#include "capture.h"
#include "contents.h"
#include "cuda_api.h"
#include "regions.h"
#include "report.h"

namespace simgpu {
namespace {

bool is_on_device(const void* address) {
  const auto region = find_region(address);
  return region && is_device_memory(region->kind);
}

cudaMemcpyKind resolve(cudaMemcpyKind kind, const void* to, const void* from) {
  if (kind != cudaMemcpyDefault) return kind;
  const bool to_device = is_on_device(to), from_device = is_on_device(from);
  if (to_device) return from_device ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice;
  return from_device ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost;
}

void read_back(void* to, const void* from, size_t bytes) {
  if (is_known(from, bytes)) {
    std::memcpy(to, from, bytes);
  } else {
    count_unknown_read();
    std::memset(to, 0, bytes);
  }
}

// Device memory, from the host or from known device memory.
void write_device(void* to, const void* from, size_t bytes, bool is_source_known) {
  if (!is_source_known || bytes > config().content_bytes) {
    note_loss(to, bytes);
    return;
  }
  std::memmove(to, from, bytes);
  note_write(to, bytes);
}

void copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (bytes == 0 || to == from) return;
  switch (resolve(kind, to, from)) {
    case cudaMemcpyHostToHost:
      std::memmove(to, from, bytes);
      break;
    case cudaMemcpyDeviceToHost:
      read_back(to, from, bytes);
      break;
    case cudaMemcpyHostToDevice:
      write_device(to, from, bytes, true);
      break;
    default:
      write_device(to, from, bytes, is_known(from, bytes));
      break;
  }
}

void fill(void* to, int value, size_t bytes) {
  if (bytes > config().content_bytes) {
    note_loss(to, bytes);
    return;
  }
  std::memset(to, value, bytes);
  note_write(to, bytes);
}

// Copies that return when they are done wait for the device.
cudaError_t wait_for_copy() {
  if (const cudaError_t error = activate(current_device()); error != cudaSuccess) return error;
  if (const cudaError_t error = refuse_while_capturing(); error != cudaSuccess) return error;
  submit(stream_of(nullptr));
  finish_all(device(current_device()));
  return cudaSuccess;
}

// Symbols of kernels have no storage: writes vanish, and every address is this scratch.
alignas(256) char symbol_scratch[1 << 20];

}  // namespace
}  // namespace simgpu

using namespace simgpu;

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (const cudaError_t error = wait_for_copy(); error != cudaSuccess) return error;
  copy(to, from, bytes, kind);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  submit(stream_of(stream));
  copy(to, from, bytes, kind);
  return cudaSuccess;
}

cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes,
                                cudaStream_t stream) {
  submit(stream_of(stream));
  copy(to, from, bytes, cudaMemcpyDeviceToDevice);
  return cudaSuccess;
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream) {
  submit(stream_of(stream));
  for (size_t row = 0; row < height; ++row) {
    copy(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch,
         width, kind);
  }
  return cudaSuccess;
}

cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  submit(stream_of(nullptr));
  fill(to, value, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  submit(stream_of(stream));
  fill(to, value, bytes);
  return cudaSuccess;
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned int value, size_t count, CUstream stream) {
  submit(stream_of(stream));
  auto* words = reinterpret_cast<unsigned int*>(to);
  if (count * sizeof *words <= config().content_bytes) {
    std::fill_n(words, count, value);
    note_write(words, count * sizeof *words);
  } else {
    note_loss(words, count * sizeof *words);
  }
  return CUDA_SUCCESS;
}

cudaError_t cudaMemcpyToSymbol(const void*, const void*, size_t, size_t, cudaMemcpyKind) {
  return wait_for_copy();
}

cudaError_t cudaGetSymbolAddress(void** address, const void*) {
  *address = symbol_scratch;
  return cudaSuccess;
}
