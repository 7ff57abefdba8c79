// Driver contexts: one a device, always the primary one. A handle is the device's address.

#include "cuda_api.h"
#include "device.h"
#include "stream.h"

namespace simgpu {
namespace {

CUcontext context_of(int ordinal) { return reinterpret_cast<CUcontext>(&device(ordinal)); }

int ordinal_of(CUcontext context) {
  return static_cast<int>(reinterpret_cast<Device*>(context) - &device(0));
}

// Contexts that cuCtxPushCurrent put aside.
constinit thread_local int pushed[16] = {};
constinit thread_local int pushed_count = 0;

}  // namespace
}  // namespace simgpu

using namespace simgpu;

CUresult cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned int* flags, int* active) {
  if (!is_device(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *flags = 0;
  *active = device(ordinal).active.load() ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice ordinal) {
  if (!is_device(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  if (activate(ordinal) != cudaSuccess) return CUDA_ERROR_NOT_INITIALIZED;
  *context = context_of(ordinal);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice) { return CUDA_SUCCESS; }

CUresult cuCtxGetCurrent(CUcontext* context) {
  const int ordinal = current_device();
  const bool has_one = is_device(ordinal) && device(ordinal).active.load();
  *context = has_one ? context_of(ordinal) : nullptr;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
  if (context != nullptr) set_current_device(ordinal_of(context));
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext context) {
  if (pushed_count == 16) return CUDA_ERROR_INVALID_VALUE;
  pushed[pushed_count++] = current_device();
  return cuCtxSetCurrent(context);
}

CUresult cuCtxPopCurrent(CUcontext* context) {
  if (pushed_count == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (context != nullptr) *context = context_of(current_device());
  set_current_device(pushed[--pushed_count]);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* ordinal) {
  *ordinal = current_device();
  return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void) {
  return cudaDeviceSynchronize() == cudaSuccess ? CUDA_SUCCESS
                                                : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult cuCtxGetLimit(size_t* value, CUlimit) {
  *value = size_t{1} << 20;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetLimit(CUlimit, size_t) { return CUDA_SUCCESS; }

CUresult cuStreamGetCtx(CUstream stream, CUcontext* context) {
  *context = context_of(stream_of(stream).device);
  return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream) {
  return static_cast<CUresult>(cudaStreamSynchronize(stream));
}
