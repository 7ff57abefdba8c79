// A trace in units: what is aged, or kept in full detail, as a whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "ageing/rows.h"
#include "compute/totals.h"
#include "trace/chunk.h"
#include "trace/chunk_decoder.h"
#include "trace/event.h"
#include "trace/source.h"

namespace gpumemtrace::ageing {

// The records up to and including the mark that begins the next step; where there are no steps, or
// they are very long, a piece of a step.
struct Unit {
  std::uint64_t number = 0;   // counted from 0
  double bytes = 0;           // about what it takes up in the file
  Rows rows;                  // in the memory of the reader, until it is asked for something else
  bool has_aged = false;      // something was left out of it already
  bool has_baseline = false;  // what was in use when the recording began is told in it
  bool is_whole = false;      // false: the last one, which goes on where reading stopped
};

// Decoded chunks to units. The same chunks give the same units, whenever. One thread at a time.
class UnitReader : private compute::BlockObserver {
 public:
  // No unit has more records.
  explicit UnitReader(std::size_t most_records) : most_records_(most_records) {}

  // Decodes the next chunk of events, when no whole unit is left. Throws FormatError,
  // std::system_error.
  void feed(const Source& source, const ChunkInfo& chunk);
  // Tells the next whole unit, if there is one.
  bool take(Unit& unit);
  // Tells what is left; false = nothing.
  bool take_rest(Unit& unit);

 private:
  std::uint32_t born(const compute::Columns& records, std::size_t i, std::int64_t number,
                     std::int64_t allocated) override;
  void resized(std::uint32_t, std::int64_t) override {}
  void died(std::uint32_t block, std::size_t i) override { note(block, i); }
  void told_of(std::uint32_t block, std::size_t i) override { note(block, i); }
  void note(std::uint32_t block, std::size_t i);
  void end_unit(std::size_t end, Unit& unit);

  std::size_t most_records_;
  std::unique_ptr<ChunkDecoder> decoder_ = std::make_unique<ChunkDecoder>();
  compute::LineBuilder lines_;  // up to the last unit taken
  RowBuffer buffer_;
  std::size_t begin_ = 0;        // of the unit that is being filled
  std::size_t seen_ = 0;         // records looked at: none of them ends it
  std::size_t older_ = 0;        // records of chunks before the last, all of that unit, and
  double older_bytes_ = 0;       // their share of the file
  double bytes_per_record_ = 0;  // of the last chunk
  std::uint32_t first_ = 0;      // number of the unit's first record, wrapping around
  std::uint64_t number_ = 0;     // of the unit
  Rows rows_;                    // whose lines are being made
};

}  // namespace gpumemtrace::ageing
