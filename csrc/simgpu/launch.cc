// Kernel launches through the runtime: the configuration is checked, the work is counted, nothing
// runs. The path that every operation of torch takes: no lock, no allocation.

#include "launch.h"

#include <cstring>

#include "contents.h"
#include "cuda_api.h"
#include "images.h"
#include "kernels.h"
#include "stream.h"

namespace simgpu {
namespace {

struct CallConfiguration {
  dim3 grid, block;
  size_t shared_bytes;
  void* stream;
};

// `kernel<<<...>>>(...)` compiles to a push, then the stub pops and launches.
constinit thread_local CallConfiguration configurations[8] = {};
constinit thread_local int configuration_count = 0;

cudaError_t launch_stub(const void* host, dim3 grid, dim3 block, void* stream) {
  const cudaError_t error = launch(grid, block, stream);
  if (error == cudaSuccess) note_launch(host);
  return error;
}

int blocks_that_fit(int threads, size_t shared_bytes) {
  const Config& c = config();
  if (threads <= 0 || threads > 1024) return 0;
  int blocks = c.threads_per_sm / ((threads + 31) / 32 * 32);
  if (blocks > c.blocks_per_sm) blocks = c.blocks_per_sm;
  if (shared_bytes > 0) {
    const int by_shared = static_cast<int>(static_cast<size_t>(c.shared_per_sm) / shared_bytes);
    if (by_shared < blocks) blocks = by_shared;
  }
  return blocks;
}

}  // namespace

cudaError_t launch(dim3 grid, dim3 block, void* stream) noexcept {
  if (const cudaError_t error = activate(current_device()); error != cudaSuccess) return error;
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || threads == 0 || threads > 1024 ||
      grid.x > 0x7fffffff || grid.y > 65535 || grid.z > 65535) {
    return fail(cudaErrorInvalidConfiguration);
  }
  note_kernel();
  submit(stream_of(stream));
  return cudaSuccess;
}

}  // namespace simgpu

using namespace simgpu;

SIMGPU_API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes,
                                                void* stream) {
  if (configuration_count == 8) return 1;
  configurations[configuration_count++] = {grid, block, shared_bytes, stream};
  return 0;
}

SIMGPU_API cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes,
                                                  void* stream) {
  if (configuration_count == 0) return fail(cudaErrorMissingConfiguration);
  const CallConfiguration& top = configurations[--configuration_count];
  *grid = top.grid;
  *block = top.block;
  *shared_bytes = top.shared_bytes;
  *static_cast<void**>(stream) = top.stream;
  return cudaSuccess;
}

cudaError_t cudaLaunchKernel(const void* host, dim3 grid, dim3 block, void**, size_t,
                             cudaStream_t stream) {
  return launch_stub(host, grid, block, stream);
}

cudaError_t cudaLaunchCooperativeKernel(const void* host, dim3 grid, dim3 block, void**, size_t,
                                        cudaStream_t stream) {
  return launch_stub(host, grid, block, stream);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* how, const void* host, void**) {
  return launch_stub(host, how->gridDim, how->blockDim, how->stream);
}

// Newer compilers go through a kernel handle; ours is the stub's address.
SIMGPU_API cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(host));
  return cudaSuccess;
}

SIMGPU_API cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void**,
                                          size_t, cudaStream_t stream) {
  return launch_stub(kernel, grid, block, stream);
}

SIMGPU_API void** __cudaRegisterFatBinary(void* binary) { return static_cast<void**>(binary); }
SIMGPU_API void __cudaRegisterFatBinaryEnd(void**) {}
SIMGPU_API void __cudaUnregisterFatBinary(void**) {}
SIMGPU_API char __cudaInitModule(void**) { return 1; }
SIMGPU_API void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}

SIMGPU_API void __cudaRegisterFunction(void** binary, const char* host, char*,
                                       const char* device_name, int, void*, void*, void*, void*,
                                       int*) {
  register_kernel(host, device_name);
  // CUB asks this one what it was compiled for; the others are tens of thousands.
  if (std::strstr(device_name, "EmptyKernel") != nullptr) remember_image(host, binary);
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* host) {
  *attributes = {};
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 32;
  attributes->ptxVersion = attributes->binaryVersion = image_architecture(host);
  attributes->maxDynamicSharedSizeBytes = 49152;
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute attribute, int value) {
  if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize &&
      value > config().shared_per_block_optin) {
    return fail(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}

#if CUDART_VERSION >= 12080
cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t kernel, cudaFuncAttribute attribute,
                                            int value, int) {
  return cudaFuncSetAttribute(kernel, attribute, value);
}
#endif

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int threads,
                                                          size_t shared_bytes) {
  *blocks = blocks_that_fit(threads, shared_bytes);
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*,
                                                                   int threads, size_t shared_bytes,
                                                                   unsigned int) {
  *blocks = blocks_that_fit(threads, shared_bytes);
  return cudaSuccess;
}
