// Which free ends which alloc: one pass, memory of the live set only.
#pragma once

#include <cstdint>
#include <vector>

#include "compute/block_table.h"
#include "compute/columns.h"

namespace gpumemtrace::compute {

class Pairing {
 public:
  // For each record the number of the alloc (counted from 0 over all feeds) that it is about,
  // -1 = none:
  //   kFree   the alloc that it ends
  //   kAlloc  the alloc that still seemed to be live at its address, and which it proves ended
  //   kTag    the live alloc that holds the tagged address
  //   kSegmentAlloc, kSegmentMap, kRetry
  //           the alloc that came last on the device, whose request they served
  void feed(const Columns& records, std::int64_t* partner);

  std::int64_t allocs() const noexcept { return allocs_; }
  // Frees that no alloc in the trace explains: of blocks from before it, or lost in a gap.
  std::int64_t unborn_frees() const noexcept { return unborn_frees_; }

 private:
  struct Block {
    std::int64_t number;
    std::int64_t size;
  };

  std::int64_t& last_alloc(std::int16_t device);
  std::int64_t holder_of(std::uint64_t address, std::int16_t device);

  BlockTable<Block> live_;
  std::vector<std::int64_t> last_alloc_;  // by device, -1 = none, or it came to nothing
  std::int64_t allocs_ = 0;
  std::int64_t unborn_frees_ = 0;
};

}  // namespace gpumemtrace::compute
