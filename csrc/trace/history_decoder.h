// Codec 2: the payload of a chunk to columns. The mirror of history_encoder.h; the layout is drawn
// in history_format.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "trace/bits.h"
#include "trace/byte_reader.h"
#include "trace/event_columns.h"
#include "trace/history.h"
#include "trace/history_format.h"

namespace gpumemtrace {

// Chunks chain: decode them in the order in which they were written, from a keyframe on. About
// 5 MiB, however long the trace. One thread at a time.
class HistoryDecoder {
 public:
  // Forgets everything: the next chunk is a keyframe.
  void reset() noexcept;
  // Fills `count` >= 1 elements of each array. Throws FormatError when the payload is not exactly
  // that many events; the arrays then hold anything, and so does the chain until reset().
  void decode(ByteReader in, std::size_t count, std::uint64_t time_resolution_ns,
              const EventColumns& out);

 private:
  // What one chunk is read from and written to.
  struct Cursor {
    ByteReader instructions;
    BitReader times;
    EventColumns out;
    std::size_t left;
  };

  void copy(Cursor& cursor, std::uint64_t count);
  void follow(Cursor& cursor, std::uint64_t count);
  void edit(Cursor& cursor, unsigned told);
  void jump(Cursor& cursor);
  void add(Cursor& cursor, unsigned told, bool aside);
  // Reads the fields that `told` says into `entry`, which holds what is foreseen.
  void get_fields(ByteReader& in, unsigned told, unsigned more, History::Entry& entry) const;
  // Leaves the time of the next event in `time`; the mirrors of put_time and put_time_alone.
  TimeGuess get_time(BitReader& times, TimeGuess guess, std::int64_t& time) noexcept;
  void get_time_alone(BitReader& times, std::int64_t& time) noexcept;

  History history_;
  std::uint64_t distance_ = 0;  // from the next event back to the source; 0 = none
  std::uint64_t last_time_ = 0;
  std::uint64_t last_history_time_ = 0;
  TimeGuess alone_ = {0, 0};
};

}  // namespace gpumemtrace
