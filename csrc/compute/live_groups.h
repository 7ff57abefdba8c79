// What is in use, by what it is for and by the phase it was born in: running sums, to be read out at
// any record, and the live blocks themselves.
//
// A stream: feed() the records of a trace in order, in batches of any size.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "compute/columns.h"
#include "compute/totals.h"

namespace gpumemtrace::compute {

constexpr std::size_t kCategories = 8;

class LiveGroups : private BlockObserver {
 public:
  struct Block {
    std::int64_t number;  // of its alloc
    std::uint64_t address;
    std::int64_t requested;
    std::int64_t allocated;
    std::int64_t birth_step;
    std::int32_t birth_phase;
    std::int16_t device;
    std::uint8_t category;
    bool is_from_before;  // it was there when the recording began
    bool is_live;
  };
  struct Sums {
    std::array<std::int64_t, kCategories> by_category{};
    std::vector<std::int64_t> by_phase;  // phase -1 (none) first
    // The highest that the sum of all has been if a category had taken nothing, or half as much.
    std::array<std::int64_t, kCategories> highest_without{};
    std::array<std::int64_t, kCategories> highest_with_half{};
  };
  // Where to read out, and whose sums: after row `row` of the batch.
  struct ReadOut {
    std::size_t row;
    std::int16_t device;
  };

  // `categories`: of each alloc of the trace; must outlive this. `of_requests`: sums are of the
  // bytes that were asked for, else of the allocator's blocks.
  LiveGroups(const std::uint8_t* categories, std::size_t allocs, std::int32_t phases,
             bool of_requests);

  // Calls `read(which, sums)` for each of `read_outs`, which are in order of rows.
  template <class Read>
  void feed(const Columns& records, const std::int64_t* step, const std::int32_t* phase,
            const std::vector<ReadOut>& read_outs, Read read) {
    std::size_t done = 0;
    for (std::size_t i = 0; i < read_outs.size(); ++i) {
      const std::size_t end = read_outs[i].row + 1;
      if (end > done) feed_part(records, step, phase, done, end);
      done = end > done ? end : done;
      read(i, sums(read_outs[i].device));
    }
    feed_part(records, step, phase, done, records.count);
  }

  const Sums& sums(std::int16_t device);
  // Live ones are those with `is_live`.
  const std::vector<Block>& blocks() const noexcept { return blocks_; }
  // The lines as they are after the last record.
  const LineBuilder& lines() const noexcept { return lines_; }

 private:
  std::uint32_t born(const Columns& records, std::size_t i, std::int64_t number,
                     std::int64_t allocated) override;
  void resized(std::uint32_t block, std::int64_t allocated) override;
  void died(std::uint32_t block, std::size_t i) override;

  void feed_part(const Columns& records, const std::int64_t* step, const std::int32_t* phase,
                 std::size_t first, std::size_t end);
  void note_baselines(const Columns& records);
  void add(const Block& block, std::int64_t bytes);

  const std::uint8_t* categories_;
  std::size_t allocs_;
  std::int32_t phases_;
  bool of_requests_;
  LineBuilder lines_;
  std::map<std::int16_t, Sums> sums_;
  std::vector<Block> blocks_;
  std::vector<std::uint32_t> unused_;   // places in blocks_
  const std::int64_t* step_ = nullptr;  // of the records that are being fed
  const std::int32_t* phase_ = nullptr;
  std::vector<std::int64_t> line_scratch_;
  std::vector<std::int16_t> device_scratch_;
  std::vector<std::uint8_t> uncertain_scratch_;
};

}  // namespace gpumemtrace::compute
