// How large a block the allocator took where the trace does not say so.
//
// PyTorch's allocator leaves up to 1 MiB of a free block of its large pool unsplit: the request
// then counts as the whole free block. A free block reaches from its address to the next block in
// use or to the end of its segment (free neighbours are merged, best fit takes the front), so the
// addresses of the live blocks and the bounds of the segments tell its size exactly.
// (torch/c10/cuda/CUDACachingAllocator.cpp: should_split, get_pool, kSmallSize.)
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace gpumemtrace::compute {

class LargeSegments {
 public:
  // Requests up to this (after rounding) live in the small pool, which splits to the last 512.
  static constexpr std::int64_t kSmallSize = std::int64_t{1} << 20;

  // The segment that a cache miss made. It replaces what was known of its addresses.
  void add(std::uint64_t base, std::int64_t size);

  // A block of at least `rounded` bytes begins at `address`: returns the bytes that the allocator
  // took for it, `rounded` where the segment is not known.
  std::int64_t take(std::uint64_t address, std::int64_t rounded);

  void give_back(std::uint64_t address);

  // The cache went back to the driver: segments without a live block may be gone.
  void forget_empty();

  void clear() { segments_.clear(); }

 private:
  struct Segment {
    std::int64_t size;
    std::vector<std::uint64_t> live;  // addresses, ascending: a handful
  };
  using Segments = std::map<std::uint64_t, Segment>;  // by base

  Segments::iterator holder_of(std::uint64_t address);

  Segments segments_;
};

}  // namespace gpumemtrace::compute
