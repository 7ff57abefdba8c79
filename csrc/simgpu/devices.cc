// Which devices there are and what they can do, for runtime and driver.

#include <cstdio>
#include <cstring>

#include "attributes.h"
#include "cuda_api.h"
#include "device.h"
#include "fork.h"
#include "identity.h"

namespace simgpu {
namespace {

void fill_limits(cudaDeviceProp& p, int ordinal) {
  const auto value = [ordinal](cudaDeviceAttr attribute) {
    return attribute_of(attribute, ordinal);
  };
  const auto bytes = [&](cudaDeviceAttr attribute) {
    return static_cast<size_t>(value(attribute));
  };
  p.sharedMemPerBlock = bytes(cudaDevAttrMaxSharedMemoryPerBlock);
  p.sharedMemPerBlockOptin = bytes(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  p.sharedMemPerMultiprocessor = bytes(cudaDevAttrMaxSharedMemoryPerMultiprocessor);
  p.reservedSharedMemPerBlock = bytes(cudaDevAttrReservedSharedMemoryPerBlock);
  p.regsPerBlock = value(cudaDevAttrMaxRegistersPerBlock);
  p.regsPerMultiprocessor = value(cudaDevAttrMaxRegistersPerMultiprocessor);
  p.warpSize = value(cudaDevAttrWarpSize);
  p.memPitch = bytes(cudaDevAttrMaxPitch);
  p.maxThreadsPerBlock = value(cudaDevAttrMaxThreadsPerBlock);
  p.maxThreadsPerMultiProcessor = value(cudaDevAttrMaxThreadsPerMultiProcessor);
  p.maxBlocksPerMultiProcessor = value(cudaDevAttrMaxBlocksPerMultiprocessor);
  const cudaDeviceAttr block[] = {cudaDevAttrMaxBlockDimX, cudaDevAttrMaxBlockDimY,
                                  cudaDevAttrMaxBlockDimZ};
  const cudaDeviceAttr grid[] = {cudaDevAttrMaxGridDimX, cudaDevAttrMaxGridDimY,
                                 cudaDevAttrMaxGridDimZ};
  for (int i = 0; i < 3; ++i) {
    p.maxThreadsDim[i] = value(block[i]);
    p.maxGridSize[i] = value(grid[i]);
  }
  p.totalConstMem = bytes(cudaDevAttrTotalConstantMemory);
  p.textureAlignment = bytes(cudaDevAttrTextureAlignment);
  p.texturePitchAlignment = bytes(cudaDevAttrTexturePitchAlignment);
  p.surfaceAlignment = bytes(cudaDevAttrSurfaceAlignment);
  p.multiProcessorCount = value(cudaDevAttrMultiProcessorCount);
  p.l2CacheSize = value(cudaDevAttrL2CacheSize);
  p.persistingL2CacheMaxSize = value(cudaDevAttrMaxPersistingL2CacheSize);
  p.accessPolicyMaxWindowSize = value(cudaDevAttrMaxAccessPolicyWindowSize);
  p.memoryBusWidth = value(cudaDevAttrGlobalMemoryBusWidth);
  p.asyncEngineCount = value(cudaDevAttrAsyncEngineCount);
}

void fill_abilities(cudaDeviceProp& p, int ordinal) {
  const auto value = [ordinal](cudaDeviceAttr attribute) {
    return attribute_of(attribute, ordinal);
  };
  p.canMapHostMemory = value(cudaDevAttrCanMapHostMemory);
  p.concurrentKernels = value(cudaDevAttrConcurrentKernels);
  p.unifiedAddressing = value(cudaDevAttrUnifiedAddressing);
  p.streamPrioritiesSupported = value(cudaDevAttrStreamPrioritiesSupported);
  p.globalL1CacheSupported = value(cudaDevAttrGlobalL1CacheSupported);
  p.localL1CacheSupported = value(cudaDevAttrLocalL1CacheSupported);
  p.managedMemory = value(cudaDevAttrManagedMemory);
  p.cooperativeLaunch = value(cudaDevAttrCooperativeLaunch);
  p.hostRegisterSupported = value(cudaDevAttrHostRegisterSupported);
  p.memoryPoolsSupported = value(cudaDevAttrMemoryPoolsSupported);
  p.pciBusID = value(cudaDevAttrPciBusId);
#if CUDART_VERSION < 13000
  p.clockRate = value(cudaDevAttrClockRate);
  p.memoryClockRate = value(cudaDevAttrMemoryClockRate);
  p.singleToDoublePrecisionPerfRatio = value(cudaDevAttrSingleToDoublePrecisionPerfRatio);
#endif
}

}  // namespace
}  // namespace simgpu

using namespace simgpu;

cudaError_t cudaGetDeviceCount(int* count) {
  *count = config().visible_count;
  return *count > 0 ? cudaSuccess : fail(cudaErrorNoDevice);
}

cudaError_t cudaGetDevice(int* ordinal) {
  *ordinal = current_device();
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int ordinal) {
  if (const cudaError_t error = activate(ordinal); error != cudaSuccess) return error;
  set_current_device(ordinal);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int ordinal) {
  if (!is_device(ordinal)) return fail(cudaErrorInvalidDevice);
  *value = attribute_of(attribute, ordinal);
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int ordinal) {
  if (!is_device(ordinal)) return fail(cudaErrorInvalidDevice);
  cudaDeviceProp& p = *properties;
  p = {};
  std::snprintf(p.name, sizeof p.name, "%s", config().name);
  const auto uuid = uuid_of(machine_index(ordinal));
  static_assert(sizeof uuid == sizeof p.uuid);
  std::memcpy(&p.uuid, &uuid, sizeof uuid);
  p.totalGlobalMem = config().memory_bytes;
  p.major = config().major;
  p.minor = config().minor;
  fill_limits(p, ordinal);
  fill_abilities(p, ordinal);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* out, int length, int ordinal) {
  if (!is_device(ordinal) || length <= 0) return fail(cudaErrorInvalidDevice);
  pci_bus_id_of(machine_index(ordinal), out, static_cast<size_t>(length));
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int a, int b) {
  if (!is_device(a) || !is_device(b)) return fail(cudaErrorInvalidDevice);
  *can = a != b ? 1 : 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int) {
  return is_device(peer) ? cudaSuccess : fail(cudaErrorInvalidDevice);
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

CUresult cuInit(unsigned int) {
  if (is_in_bad_fork()) return CUDA_ERROR_NOT_INITIALIZED;
  return config().visible_count > 0 ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

CUresult cuDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  *count = config().visible_count;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* out, int ordinal) {
  if (!is_device(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *out = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice ordinal) {
  if (!is_device(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *value = attribute_of(attribute, ordinal);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* out, int length, CUdevice ordinal) {
  if (!is_device(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  std::snprintf(out, static_cast<size_t>(length), "%s", config().name);
  return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(size_t* bytes, CUdevice ordinal) {
  if (!is_device(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *bytes = config().memory_bytes;
  return CUDA_SUCCESS;
}
