// Kernels loaded at run time (Triton, NVRTC): images are taken unread, functions are only launched.

#include "cuda_api.h"
#include "device.h"
#include "launch.h"
#include "stream.h"

namespace simgpu {
namespace {

// All modules, libraries and functions are alike: one object whose address serves as their handle.
char one_for_all;

template <typename Handle>
void give(Handle* out) {
  *out = reinterpret_cast<Handle>(&one_for_all);
}

CUresult load(CUmodule* module) {
  if (activate(current_device()) != cudaSuccess) return CUDA_ERROR_NOT_INITIALIZED;
  give(module);
  return CUDA_SUCCESS;
}

CUresult launch_driver(unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                       CUstream stream) {
  return static_cast<CUresult>(launch(dim3{gx, gy, gz}, dim3{bx, by, bz}, stream));
}

}  // namespace
}  // namespace simgpu

using namespace simgpu;

CUresult cuModuleLoad(CUmodule* module, const char*) { return load(module); }
CUresult cuModuleLoadData(CUmodule* module, const void*) { return load(module); }
CUresult cuModuleLoadDataEx(CUmodule* module, const void*, unsigned int, CUjit_option*, void**) {
  return load(module);
}
CUresult cuModuleUnload(CUmodule) { return CUDA_SUCCESS; }

CUresult cuModuleGetFunction(CUfunction* function, CUmodule, const char*) {
  give(function);
  return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction) {
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = 1024;
      break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      *value = 32;
      break;
    default:
      *value = 0;
      break;  // no static shared memory, no spills
  }
  return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) { return CUDA_SUCCESS; }
CUresult cuFuncSetCacheConfig(CUfunction, CUfunc_cache) { return CUDA_SUCCESS; }
CUresult cuFuncLoad(CUfunction) { return CUDA_SUCCESS; }

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction, int threads,
                                                     size_t shared_bytes) {
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, nullptr, threads, shared_bytes);
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveClusters(int* clusters, CUfunction, const CUlaunchConfig*) {
  *clusters = config().sm_count / 16;  // the largest portable cluster is 8 blocks; half of the SMs
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction, unsigned int gx, unsigned int gy, unsigned int gz,
                        unsigned int bx, unsigned int by, unsigned int bz, unsigned int,
                        CUstream stream, void**, void**) {
  return launch_driver(gx, gy, gz, bx, by, bz, stream);
}

CUresult cuLaunchCooperativeKernel(CUfunction, unsigned int gx, unsigned int gy, unsigned int gz,
                                   unsigned int bx, unsigned int by, unsigned int bz, unsigned int,
                                   CUstream stream, void**) {
  return launch_driver(gx, gy, gz, bx, by, bz, stream);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* how, CUfunction, void**, void**) {
  return launch_driver(how->gridDimX, how->gridDimY, how->gridDimZ, how->blockDimX, how->blockDimY,
                       how->blockDimZ, how->hStream);
}

CUresult cuLibraryLoadData(CUlibrary* library, const void*, CUjit_option*, void**, unsigned int,
                           CUlibraryOption*, void**, unsigned int) {
  give(library);
  return CUDA_SUCCESS;
}
CUresult cuLibraryUnload(CUlibrary) { return CUDA_SUCCESS; }
CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary, const char*) {
  give(kernel);
  return CUDA_SUCCESS;
}
CUresult cuKernelGetFunction(CUfunction* function, CUkernel) {
  give(function);
  return CUDA_SUCCESS;
}

#if CUDART_VERSION >= 12080
cudaError_t cudaLibraryLoadData(cudaLibrary_t* library, const void*, cudaJitOption*, void**,
                                unsigned int, cudaLibraryOption*, void**, unsigned int) {
  give(library);
  return cudaSuccess;
}
cudaError_t cudaLibraryUnload(cudaLibrary_t) { return cudaSuccess; }
cudaError_t cudaLibraryGetKernel(cudaKernel_t* kernel, cudaLibrary_t, const char*) {
  give(kernel);
  return cudaSuccess;
}
#endif

// A descriptor that nothing will read.
CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType, cuuint32_t, void*,
                                const cuuint64_t*, const cuuint64_t*, const cuuint32_t*,
                                const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  *map = {};
  return CUDA_SUCCESS;
}
