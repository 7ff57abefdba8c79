#pragma once

#include "cuda_api.h"

namespace simgpu {

// A launch as the driver sees it: checks the configuration, makes the context if need be, counts
// the work on `stream` (a runtime or driver handle).
cudaError_t launch(dim3 grid, dim3 block, void* stream) noexcept;

}  // namespace simgpu
