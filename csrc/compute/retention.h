// What stays in use from step to step: live bytes at the end of each step by where they were born,
// and the ages at which blocks die.
//
// A stream: feed() the records of a trace in order, in batches of any size. Memory is that of the
// live set and of at most kMostRows rows, however many steps there are.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "compute/block_table.h"
#include "compute/columns.h"

namespace gpumemtrace::compute {

class RetentionLedger {
 public:
  static constexpr std::size_t kMostRows = 1U << 14;
  static constexpr std::size_t kAgeBins = 40;

  // Blocks that were born alike. Bytes are allocated ones: sizes rounded up to 512.
  struct Group {
    std::int16_t device;
    std::int32_t phase;
    std::uint8_t category;
    std::int64_t live_bytes = 0;
    // Bytes freed at an age of [2^i, 2^(i+1)) step marks; what dies in its own step is not counted.
    std::array<std::int64_t, kAgeBins> freed_bytes{};
  };
  struct Block {
    std::int64_t number;  // of its alloc, counted from 0 over all feeds
    std::int64_t size;    // allocated
    std::uint32_t group;
    std::uint32_t birth;  // step marks before it
    std::uint32_t thread;
  };

  // `phase`: that of each record. `category`: of each alloc in the batch, in order; allocs past
  // `categories` have 0.
  void feed(const Columns& records, const std::int32_t* phase, const std::uint8_t* category,
            std::size_t categories);

  std::int64_t allocs() const noexcept { return allocs_; }
  std::uint32_t step_marks() const noexcept { return step_marks_; }
  const std::vector<Group>& groups() const noexcept { return groups_; }
  const BlockTable<Block>& live() const noexcept { return live_; }

  // The live bytes of each group at step marks `row_mark` (counted from 0), a row each; a row is
  // as long as there were groups then. After kMostRows rows every second one goes.
  const std::vector<std::uint32_t>& row_mark() const noexcept { return row_mark_; }
  const std::vector<std::vector<std::int64_t>>& rows() const noexcept { return rows_; }

 private:
  std::uint32_t group_of(std::int16_t device, std::int32_t phase, std::uint8_t category);
  void died(const Block& block) noexcept;
  void end_step();

  BlockTable<Block> live_;
  std::vector<Group> groups_;
  std::map<std::tuple<std::int16_t, std::int32_t, std::uint8_t>, std::uint32_t> numbers_;
  std::uint32_t last_group_ = 0;
  std::int64_t allocs_ = 0;
  std::uint32_t step_marks_ = 0;
  std::uint32_t stride_ = 1;
  std::vector<std::uint32_t> row_mark_;
  std::vector<std::vector<std::int64_t>> rows_;
};

}  // namespace gpumemtrace::compute
