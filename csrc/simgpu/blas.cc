// cuBLAS and cuBLASLt: handles keep their settings, every computation is one piece of work on the
// handle's stream. What has no function here is generated (generate_stubs.py) onto simgpu_blas_work.

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "contents.h"
#include "cuda_api.h"
#include "stream.h"
#include "stubs.h"

namespace {

struct Handle {
  int math_mode = 0;
  int pointer_mode = 0;
  void* stream = nullptr;
};

// cublasLtMatmulHeuristicResult_t, as its documentation lays it out.
struct Heuristic {
  uint64_t algorithm[8];
  size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
};

// Descriptors are opaque to torch: it allocates 64 bytes at most for them by value, never reads.
int make_descriptor(void** out) {
  *out = std::calloc(1, 512);
  return *out != nullptr ? 0 : 3;  // CUBLAS_STATUS_ALLOC_FAILED
}

int drop_descriptor(void* descriptor) {
  std::free(descriptor);
  return 0;
}

}  // namespace

int simgpu_blas_work(void* handle) {
  simgpu::note_kernel();
  simgpu::submit(
      simgpu::stream_of(handle != nullptr ? static_cast<Handle*>(handle)->stream : nullptr));
  return 0;
}

SIMGPU_API int cublasCreate_v2(void** out) {
  *out = new Handle;
  return 0;
}
SIMGPU_API int cublasDestroy_v2(void* handle) {
  delete static_cast<Handle*>(handle);
  return 0;
}
SIMGPU_API int cublasGetMathMode(void* handle, int* mode) {
  *mode = static_cast<Handle*>(handle)->math_mode;
  return 0;
}
SIMGPU_API int cublasSetMathMode(void* handle, int mode) {
  static_cast<Handle*>(handle)->math_mode = mode;
  return 0;
}
SIMGPU_API int cublasGetPointerMode_v2(void* handle, int* mode) {
  *mode = static_cast<Handle*>(handle)->pointer_mode;
  return 0;
}
SIMGPU_API int cublasSetPointerMode_v2(void* handle, int mode) {
  static_cast<Handle*>(handle)->pointer_mode = mode;
  return 0;
}
SIMGPU_API int cublasSetStream_v2(void* handle, void* stream) {
  static_cast<Handle*>(handle)->stream = stream;
  return 0;
}
SIMGPU_API int cublasGetStream_v2(void* handle, void** stream) {
  *stream = static_cast<Handle*>(handle)->stream;
  return 0;
}
SIMGPU_API int cublasSetWorkspace_v2(void*, void*, size_t) { return 0; }
SIMGPU_API int cublasSetSmCountTarget(void*, int) { return 0; }
SIMGPU_API int cublasGetVersion_v2(void*, int* version) {
  *version = CUDART_VERSION * 10;
  return 0;
}

SIMGPU_API int cublasLtCreate(void** out) { return cublasCreate_v2(out); }
SIMGPU_API int cublasLtDestroy(void* handle) { return cublasDestroy_v2(handle); }
SIMGPU_API size_t cublasLtGetVersion(void) { return CUDART_VERSION * 10; }
SIMGPU_API int cublasLtMatmulDescCreate(void** out, int, int) { return make_descriptor(out); }
SIMGPU_API int cublasLtMatmulDescDestroy(void* descriptor) { return drop_descriptor(descriptor); }
SIMGPU_API int cublasLtMatrixLayoutCreate(void** out, int, uint64_t, uint64_t, int64_t) {
  return make_descriptor(out);
}
SIMGPU_API int cublasLtMatrixLayoutDestroy(void* layout) { return drop_descriptor(layout); }
SIMGPU_API int cublasLtMatmulPreferenceCreate(void** out) { return make_descriptor(out); }
SIMGPU_API int cublasLtMatmulPreferenceDestroy(void* preference) {
  return drop_descriptor(preference);
}

// One algorithm, which needs no workspace of its own: torch allocates the one it prefers anyway.
SIMGPU_API int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void*,
                                              int wanted, Heuristic* results, int* found) {
  *found = wanted > 0 ? 1 : 0;
  if (wanted > 0) std::memset(results, 0, sizeof *results);
  return 0;
}
SIMGPU_API int cublasLtMatmulAlgoCheck(void*, void*, void*, void*, void*, void*, void*,
                                       Heuristic* result) {
  std::memset(result, 0, sizeof *result);
  return 0;
}
SIMGPU_API int cublasLtMatmul(void*, void*, void*, void*, void*, void*, void*, void*, void*, void*,
                              void*, void*, void*, void*, size_t, void* stream) {
  simgpu::note_kernel();
  simgpu::submit(simgpu::stream_of(stream));
  return 0;
}
