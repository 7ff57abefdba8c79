// What differs between torch versions, apart from the list of virtuals (forwarding_allocator.h).
#pragma once

// torch's Linux wheels are built with it; without it 2.6's header says "no expandable segments".
#ifndef PYTORCH_C10_DRIVER_API_SUPPORTED
#define PYTORCH_C10_DRIVER_API_SUPPORTED
#endif

#include <c10/cuda/CUDAAllocatorConfig.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <torch/version.h>

#include <cstddef>
#include <cstdint>

#define GPUMEMTRACE_TORCH_AT_LEAST(major, minor) \
  (TORCH_VERSION_MAJOR > (major) ||              \
   (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

namespace gpumemtrace::hook {

using c10::cuda::MempoolId_t;
using c10::cuda::CUDACachingAllocator::CUDAAllocator;

#if GPUMEMTRACE_TORCH_AT_LEAST(2, 10)
using AllocatorConfig = c10::CachingAllocator::AcceleratorAllocatorConfig;
inline bool uses_expandable_segments() { return AllocatorConfig::use_expandable_segments(); }
#else
using AllocatorConfig = c10::cuda::CUDACachingAllocator::CUDAAllocatorConfig;
inline bool uses_expandable_segments() { return AllocatorConfig::expandable_segments(); }
#endif

// Whether blocks of all sizes may be split (PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb is not set).
inline bool splits_every_size() { return AllocatorConfig::max_split_size() == SIZE_MAX; }

// Whether torch lets other threads allocate while one waits for cudaMalloc.
inline bool releases_lock_on_cudamalloc() {
  return c10::cuda::CUDACachingAllocator::CUDAAllocatorConfig::release_lock_on_cudamalloc();
}

// Whether requests of this size may be rounded up to more than the next multiple of 512 bytes
// (PYTORCH_CUDA_ALLOC_CONF=roundup_power2_divisions:...).
inline bool is_rounded_to_power2_divisions(std::size_t size) {
  return AllocatorConfig::roundup_power2_divisions(size) > 1;
}

// Every block of the allocator, without its history where torch can leave that out.
inline c10::cuda::CUDACachingAllocator::SnapshotInfo snapshot_blocks(CUDAAllocator& native) {
#if GPUMEMTRACE_TORCH_AT_LEAST(2, 11)
  return native.snapshot({0, 0}, /*include_traces=*/false);
#else
  return native.snapshot();
#endif
}

}  // namespace gpumemtrace::hook
