// Codec 1: the payload of a chunk to columns. The mirror of encoder.h, where the layout is drawn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "trace/byte_reader.h"
#include "trace/column_decoder.h"
#include "trace/event_columns.h"
#include "trace/kind_groups.h"

namespace gpumemtrace {

// Keeps its scratch memory from one chunk to the next. One thread at a time.
class Decoder {
 public:
  // Fills `count` >= 1 elements of each array. Throws FormatError when the payload is not exactly
  // that many events; the arrays then hold anything.
  void decode(ByteReader in, std::size_t count, std::uint64_t time_resolution_ns,
              const EventColumns& out);

 private:
  KindGroups groups_;
  ColumnDecoder column_;
  std::vector<std::uint64_t> values_;
};

}  // namespace gpumemtrace
