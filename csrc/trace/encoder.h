// Codec 1: events to the payload of a chunk. decoder.h is its mirror.
//
//   payload   kind column   time column   [ per kind, ascending:
//             address  size  stream  extra  thread  site  flags  device ]
//
// Kind and time hold one value per event, in order; the others one per event of that kind. Each is
// stored as a ColumnEncoding (format.h). Time is in units of the chunk's time_resolution_ns.
// Narrow fields are widened without sign.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "trace/column_encoder.h"
#include "trace/event.h"
#include "trace/kind_groups.h"

namespace gpumemtrace {

// Keeps its scratch memory from one chunk to the next. One thread at a time.
class Encoder {
 public:
  // Appends the payload of `count` >= 1 events to `out`. May throw std::bad_alloc.
  void encode(const Event* events, std::size_t count, std::uint64_t time_resolution_ns,
              std::vector<std::uint8_t>& out);

 private:
  static constexpr std::size_t kGroupedColumns = 8;

  // Fills values_ with the grouped columns of one kind, one column behind the other.
  void gather(const Event* events, const KindGroups::Group& group);

  KindGroups groups_;
  ColumnEncoder column_;
  std::vector<std::uint16_t> kinds_;
  std::vector<std::uint64_t> values_;
};

}  // namespace gpumemtrace
