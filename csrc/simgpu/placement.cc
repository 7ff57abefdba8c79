#include "placement.h"

#include <algorithm>

namespace simgpu {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

}  // namespace

Placement::Placement(uint64_t bottom, uint64_t top)
    : bottom_(bottom), first_slab_end_(top - 512 * kMiB) {
  const auto add_hole = [this](uint64_t start, uint64_t size) {
    regions_.emplace(start, Region{size, true, RangeSet(start, size)});
  };
  add_hole(top - 98 * kMiB, 2 * kMiB);
  add_hole(top - 24 * kMiB, 22 * kMiB);
}

// Returns where it starts, or 0. Address space that ran out below is searched for between slabs.
uint64_t Placement::add_slab(uint64_t bytes) {
  const uint64_t lowest = std::min(regions_.begin()->first, first_slab_end_);
  if (bytes <= lowest - bottom_) return lowest - bytes;
  uint64_t end = first_slab_end_;
  for (auto region = regions_.lower_bound(end); region != regions_.begin();) {
    --region;
    const uint64_t above = region->first + region->second.size;
    if (above <= end && bytes <= end - above) return end - bytes;
    end = region->first;
  }
  return 0;
}

uint64_t Placement::allocate_pages(uint64_t bytes) {
  for (auto& [start, region] : regions_) {
    if (const uint64_t address = region.free.take_lowest(bytes); address != 0) return address;
  }
  const uint64_t size = round_up(bytes, kSlab);
  const uint64_t start = add_slab(size);
  if (start == 0) return 0;
  Region& slab = regions_.emplace(start, Region{size, false, {}}).first->second;
  slab.free.add(start + bytes, size - bytes);
  return start;
}

Placement::Piece Placement::allocate_small(uint64_t bytes) {
  for (auto& [start, chunk] : chunks_) {
    if (const uint64_t address = chunk.free.take_lowest(bytes); address != 0) return {address, 0};
  }
  const uint64_t start = allocate_pages(kPage);
  if (start == 0) return {};
  Region& chunk = chunks_.emplace(start, Region{kPage, false, {}}).first->second;
  chunk.free.add(start + bytes, kPage - bytes);
  return {start, kPage};
}

Placement::Piece Placement::allocate(uint64_t bytes) {
  const bool is_small = bytes <= kSmallLimit;
  const uint64_t rounded = round_up(bytes, is_small ? kSmallest : kPage);
  const Piece piece = is_small ? allocate_small(rounded) : Piece{allocate_pages(rounded), rounded};
  if (piece.address == 0) return {};
  live_.emplace(piece.address, rounded);
  return piece;
}

void Placement::free_pages(uint64_t address, uint64_t bytes) {
  const auto region = containing(regions_, address);
  region->second.free.add(address, bytes);
  if (region->second.permanent) return;
  if (region->second.free.has_range(region->first, region->second.size)) regions_.erase(region);
}

uint64_t Placement::free(uint64_t address) {
  const auto piece = live_.find(address);
  if (piece == live_.end()) return kUnknown;
  const uint64_t bytes = piece->second;
  live_.erase(piece);
  const auto chunk = containing(chunks_, address);
  if (chunk == chunks_.end()) {
    free_pages(address, bytes);
    return bytes;
  }
  chunk->second.free.add(address, bytes);
  if (!chunk->second.free.has_range(chunk->first, kPage)) return 0;
  const uint64_t start = chunk->first;
  chunks_.erase(chunk);
  free_pages(start, kPage);
  return kPage;
}

}  // namespace simgpu
