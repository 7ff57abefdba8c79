// A trace in units: what is aged, or kept in full detail, as a whole.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "compute/totals.h"
#include "trace/chunk.h"
#include "trace/chunk_decoder.h"
#include "trace/event.h"
#include "trace/event_buffer.h"
#include "trace/source.h"

namespace gpumemtrace::ageing {

// The lines of one device that the allocator tells: requested, allocated, active, reserved bytes.
struct Levels {
  static constexpr std::size_t kCount = 4;
  std::array<std::int64_t, kCount> bytes{};

  std::int64_t requested() const noexcept { return bytes[0]; }
  std::int64_t allocated() const noexcept { return bytes[1]; }
  std::int64_t active() const noexcept { return bytes[2]; }
  std::int64_t reserved() const noexcept { return bytes[3]; }
  void raise_to(const Levels& other) noexcept {
    for (std::size_t i = 0; i < kCount; ++i) bytes[i] = std::max(bytes[i], other.bytes[i]);
  }
  bool operator==(const Levels&) const = default;
};

// An event with what is true after it.
struct Record {
  Event event;
  Levels lines;              // of `device`
  std::int64_t block_bytes;  // of an alloc: what the allocator took for it
  std::int16_t device;       // the event's own, or that of the block that it frees; -1 = none
  bool unsure;               // events of the device were lost, and no counters read since
};

inline bool is_baseline(const Event& event) noexcept {
  return event.kind == Kind::kStats &&
         event.flags == static_cast<std::uint32_t>(StatsCause::kBaseline);
}

// The records up to and including the mark that begins the next step; where there are no steps, or
// they are very long, a piece of a step.
struct Unit {
  std::uint64_t number = 0;  // counted from 0
  double bytes = 0;          // about what it takes up in the file
  std::vector<Record> records;
  bool has_aged = false;      // something was left out of it already
  bool has_baseline = false;  // what was in use when the recording began is told in it
  bool is_whole = false;      // false: the last one, which goes on where reading stopped

  void clear() noexcept {
    records.clear();
    bytes = 0;
    has_aged = has_baseline = is_whole = false;
  }
};

// Decoded chunks to units. The same chunks give the same units, whenever. One thread at a time.
class UnitReader : private compute::BlockObserver {
 public:
  // No unit has more records.
  explicit UnitReader(std::size_t most_records) : most_records_(most_records) {}

  // Decodes the next chunk of events. Throws FormatError, std::system_error.
  void feed(const Source& source, const ChunkInfo& chunk);
  // Moves the next whole unit to `unit`, if there is one.
  bool take(Unit& unit);
  // Moves what is left; false = nothing.
  bool take_rest(Unit& unit);

 private:
  std::uint32_t born(const compute::Columns& records, std::size_t i, std::int64_t number,
                     std::int64_t allocated) override;
  void resized(std::uint32_t, std::int64_t) override {}
  void died(std::uint32_t) override {}

  std::size_t most_records_;
  ChunkDecoder decoder_;
  EventBuffer buffer_;
  compute::LineBuilder lines_;
  std::vector<std::int64_t> block_bytes_;  // of the chunk's records
  std::vector<std::int64_t> values_;
  std::vector<std::int16_t> devices_;
  std::vector<std::uint8_t> unsure_;
  std::vector<Record> records_;  // of the chunk
  std::size_t taken_ = 0;        // of them
  double bytes_per_record_ = 0;  // of the chunk
  Unit unit_;                    // that is being filled
};

}  // namespace gpumemtrace::ageing
