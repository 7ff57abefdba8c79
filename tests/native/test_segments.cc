#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "compute/segments.h"

namespace gpumemtrace::compute {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kBase = std::uint64_t{1} << 40;

// Blocks of one device as (address - kBase, size, in use).
std::vector<std::vector<std::uint64_t>> rows(const SegmentBlocks& state) {
  std::vector<std::vector<std::uint64_t>> result;
  state.for_each_segment(0, [&](std::uint32_t segment) {
    for (std::uint32_t b = state.segment(segment).first; b != SegmentBlocks::kNone;
         b = state.block(b).next) {
      const auto& block = state.block(b);
      const bool is_free = block.state == SegmentBlocks::State::kFree;
      result.push_back({(block.address - kBase) / kMiB, block.size / kMiB, is_free ? 0u : 1u});
    }
  });
  return result;
}

using Rows = std::vector<std::vector<std::uint64_t>>;

}  // namespace

TEST_CASE("free neighbours merge, within their segment") {
  SegmentBlocks state;
  SegmentBlocks::Group group{};
  state.add(0, kBase, 20 * kMiB, group, 0, true);
  state.add(0, kBase + 20 * kMiB, 20 * kMiB, group, 0, true);
  std::vector<std::uint32_t> blocks;
  for (std::uint64_t at = 0; at < 30; at += 5) {
    blocks.push_back(state.free_block_at(0, kBase + at * kMiB));
    state.take(blocks.back(), 5 * kMiB, 1, 0);
  }
  state.release(blocks[1]);
  state.release(blocks[3]);
  CHECK(rows(state) ==
        Rows{{0, 5, 1}, {5, 5, 0}, {10, 5, 1}, {15, 5, 0}, {20, 5, 1}, {25, 5, 1}, {30, 10, 0}});
  state.release(blocks[2]);
  state.release(blocks[4]);
  CHECK(rows(state) == Rows{{0, 5, 1}, {5, 15, 0}, {20, 5, 0}, {25, 5, 1}, {30, 10, 0}});
  state.release(blocks[0]);
  const auto& free = state.totals(0).free;
  CHECK(free[static_cast<std::size_t>(FreeCause::kIdle)] == 20 * kMiB);
  CHECK(free[static_cast<std::size_t>(FreeCause::kInterleaved)] == 15 * kMiB);
}

TEST_CASE("an address in the middle of a free block splits it") {
  SegmentBlocks state;
  state.add(0, kBase, 20 * kMiB, SegmentBlocks::Group{}, 0, true);
  state.take(state.free_block_at(0, kBase + 7 * kMiB), 3 * kMiB, 1, 0);
  CHECK(rows(state) == Rows{{0, 7, 0}, {7, 3, 1}, {10, 10, 0}});
  CHECK(state.free_block_at(0, kBase + 8 * kMiB) == SegmentBlocks::kNone);
  CHECK(state.free_block_at(0, kBase + 20 * kMiB) == SegmentBlocks::kNone);
  CHECK(state.free_block_at(1, kBase) == SegmentBlocks::kNone);
}

TEST_CASE("an expandable segment is cut and joined") {
  SegmentBlocks state;
  const SegmentBlocks::Group group{};
  const auto segment = state.add(0, kBase, 60 * kMiB, group, 20 * kMiB, true);
  state.take(state.free_block_at(0, kBase), kMiB, 1, 0);
  state.take(state.free_block_at(0, kBase + 59 * kMiB), kMiB, 1, 1);
  CHECK(state.totals(0).free[static_cast<std::size_t>(FreeCause::kIdle)] == 20 * kMiB);
  CHECK_FALSE(state.cut(segment, kBase, kBase + 20 * kMiB));  // in use
  CHECK(rows(state) == Rows{{0, 1, 1}, {1, 58, 0}, {59, 1, 1}});
  CHECK(state.cut(segment, kBase + 20 * kMiB, kBase + 40 * kMiB));
  CHECK(rows(state) == Rows{{0, 1, 1}, {1, 19, 0}, {40, 19, 0}, {59, 1, 1}});
  CHECK(state.totals(0).reserved == 40 * kMiB);
  state.extend(state.holder_of(0, kBase), 20 * kMiB);
  state.join(state.holder_of(0, kBase), state.holder_of(0, kBase + 40 * kMiB));
  CHECK(rows(state) == Rows{{0, 1, 1}, {1, 58, 0}, {59, 1, 1}});
  CHECK(state.totals(0).free[static_cast<std::size_t>(FreeCause::kIdle)] == 20 * kMiB);
}

}  // namespace gpumemtrace::compute
