// How PyTorch rounds a request.
#pragma once

#include <cstdint>

namespace gpumemtrace::compute {

// Bytes of the block for a request, where the allocator splits off all of the rest.
// (torch/c10/cuda/CUDACachingAllocator.cpp: round_size, kMinBlockSize.)
constexpr std::int64_t rounded(std::int64_t size) noexcept {
  constexpr std::int64_t kBlockRounding = 512;
  // Sizes come from a file: one near the end of the range must not overflow.
  if (size > INT64_MAX - kBlockRounding) return size;
  return (size + kBlockRounding - 1) / kBlockRounding * kBlockRounding;
}

}  // namespace gpumemtrace::compute
