// Bytes to one column of 64-bit values: the mirror of column_encoder.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "trace/byte_reader.h"
#include "trace/format.h"

namespace gpumemtrace {

// Keeps its table from one column to the next. One thread at a time.
class ColumnDecoder {
 public:
  // Fills values[0, count). Throws FormatError where the bytes are no such column.
  void decode(ByteReader& in, std::size_t count, std::uint64_t* values);

 private:
  void get_runs(ByteReader& in, std::size_t count, std::uint64_t* values) const;
  void get_deltas(ByteReader& in, std::size_t count, std::uint64_t* values) const;
  void get_dictionary(ByteReader& in, std::size_t count, std::uint64_t* values);

  std::uint64_t entries_[kMaxDictionarySize] = {};
};

}  // namespace gpumemtrace
