// Which free ends which alloc: one pass, memory of the live set only.
#pragma once

#include <cstdint>

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
  void feed(const Columns& records, std::int64_t* partner);

  std::int64_t allocs() const noexcept { return allocs_; }

 private:
  struct Block {
    std::int64_t number;
    std::int64_t size;
  };

  std::int64_t holder_of(std::uint64_t address, std::int16_t device);

  BlockTable<Block> live_;
  std::int64_t allocs_ = 0;
};

}  // namespace gpumemtrace::compute
