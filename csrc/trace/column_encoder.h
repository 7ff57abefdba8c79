// One column of 64-bit values to bytes, in whichever ColumnEncoding (format.h) comes out shortest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gpumemtrace {

// Keeps its tables from one column to the next. One thread at a time.
class ColumnEncoder {
 public:
  // Appends to `out`. `count` >= 1.
  void encode(const std::uint64_t* values, std::size_t count, std::vector<std::uint8_t>& out);

 private:
  struct Slot {
    std::uint64_t value;
    std::uint32_t epoch;  // the column that filled this slot; older ones are empty
    std::uint32_t index;
  };

  // Fills entries_ and indices_; returns the bytes it takes, or SIZE_MAX once it is sure not to be
  // below `limit`.
  std::size_t build_dictionary(const std::uint64_t* values, std::size_t count, std::size_t limit);

  void put_runs(const std::uint64_t* values, std::size_t count, std::uint8_t* out) const;
  void put_deltas(const std::uint64_t* values, std::size_t count, std::uint8_t* out) const;
  void put_dictionary(std::uint8_t* out) const;

  std::vector<Slot> slots_;
  std::uint32_t epoch_ = 0;
  std::vector<std::uint64_t> entries_;
  std::vector<std::uint16_t> indices_;
};

}  // namespace gpumemtrace
