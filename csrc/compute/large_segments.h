// How large a block the allocator took where the trace does not say so.
//
// PyTorch's allocator leaves up to 1 MiB of a free block of its large pool unsplit: the request
// then counts as the whole free block. A free block reaches from its address to the next block in
// use or to the end of its segment (free neighbours are merged, best fit takes the front), so the
// addresses of the live blocks and the bounds of the segments tell its size exactly. The hook leaves
// out what can be told so (csrc/torch/segment_knowledge.h).
// (torch/c10/cuda/CUDACachingAllocator.cpp: should_split, get_pool, kSmallSize.)
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

namespace gpumemtrace::compute {

class LargeSegments {
 public:
  // Requests up to this (after rounding) live in the small pool, which splits to the last 512.
  static constexpr std::int64_t kSmallSize = std::int64_t{1} << 20;

  LargeSegments() = default;
  // recent_ points into segments_: a copy begins without.
  LargeSegments(const LargeSegments& other)
      : segments_(other.segments_), elsewhere_(other.elsewhere_) {}
  LargeSegments& operator=(const LargeSegments&) = delete;

  // A segment that came from the driver. It replaces what was known of its addresses, except for the
  // live blocks there.
  void add(std::uint64_t base, std::int64_t size);

  // A block of at least `rounded` bytes begins at `address`: returns the bytes that the allocator
  // took for it, `rounded` where the segment is not known.
  std::int64_t take(std::uint64_t address, std::int64_t rounded);

  void give_back(std::uint64_t address);

  // The cache went back to the driver: segments without a live block may be gone.
  void forget_empty();

  void clear();

 private:
  using Addresses = std::vector<std::uint64_t>;  // ascending
  struct Segment {
    std::uint64_t base;
    std::uint64_t size;
    Addresses live;  // a handful

    bool holds(std::uint64_t address) const noexcept { return address - base < size; }
  };
  using Segments = std::map<std::uint64_t, Segment>;  // by base

  // Most blocks come back to where one was lately: a look here is a tenth of the search.
  static constexpr std::size_t kRecent = 1024;
  static std::size_t place_of(std::uint64_t address) noexcept { return (address >> 21) % kRecent; }

  Segment* holder_of(std::uint64_t address);
  void forget_recent() { recent_.fill(nullptr); }

  Segments segments_;
  std::array<Segment*, kRecent> recent_{};
  // Live blocks in no segment that is known. Where threads meet, a block may come before its segment;
  // a trace without segments is full of them, and they are of no use to it.
  static constexpr std::size_t kMostElsewhere = 256;
  void put_elsewhere(std::uint64_t address);
  Addresses elsewhere_;
};

}  // namespace gpumemtrace::compute
