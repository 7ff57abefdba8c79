// CUDA's own declarations, with default visibility so that what we define under these names is
// exported (the rest of the library is hidden; see exports.map). Include this, never CUDA's headers.
#pragma once

#pragma GCC visibility push(default)
#include <cuda.h>
#include <cuda_runtime_api.h>
#pragma GCC visibility pop

// For names that CUDA's headers in hand do not declare (BLAS, NVML, NCCL, other CUDA versions).
#define SIMGPU_API extern "C" __attribute__((visibility("default")))
