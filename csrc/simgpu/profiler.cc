// Profiling and driver logs: the switches do nothing. torch.profiler runs; it sees no activity of the
// device, since CUPTI offers none.

#include "cuda_api.h"
#include "report.h"

namespace {
constexpr int kNotSupported = 27;  // CUPTI_ERROR_NOT_SUPPORTED
}

cudaError_t cudaProfilerStart(void) { return cudaSuccess; }
cudaError_t cudaProfilerStop(void) { return cudaSuccess; }

SIMGPU_API int cuptiSubscribe(void**, void*, void*) {
  simgpu::count_approximation("CUPTI", "not simulated: a profiler sees no activity of the device");
  return kNotSupported;
}
SIMGPU_API int cuptiGetResultString(int, const char** text) {
  *text = "not simulated";
  return 0;
}
SIMGPU_API int cuptiGetVersion(unsigned* version) {
  *version = CUDART_VERSION / 1000;
  return 0;
}

#if CUDA_VERSION >= 12090
CUresult cuLogsRegisterCallback(CUlogsCallback, void*, CUlogsCallbackHandle* handle) {
  *handle = nullptr;
  return CUDA_SUCCESS;
}
CUresult cuLogsUnregisterCallback(CUlogsCallbackHandle) { return CUDA_SUCCESS; }
#endif
