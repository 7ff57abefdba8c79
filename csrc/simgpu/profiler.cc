// Profiling: the switches do nothing. torch.profiler runs and shows no device activity, since CUPTI
// (generated refusals) offers none.

#include "cuda_api.h"

cudaError_t cudaProfilerStart(void) { return cudaSuccess; }
cudaError_t cudaProfilerStop(void) { return cudaSuccess; }

SIMGPU_API int cuptiGetResultString(int, const char** text) {
  *text = "not simulated";
  return 0;
}
SIMGPU_API int cuptiGetVersion(unsigned* version) {
  *version = CUDART_VERSION / 1000;
  return 0;
}
