// Chunks of events to columns, whatever their codec. Keeps what the next chunk of a chain needs.
#pragma once

#include <cstdint>

#include "trace/chunk.h"
#include "trace/decoder.h"
#include "trace/event_columns.h"
#include "trace/history_decoder.h"

namespace gpumemtrace {

// One thread at a time.
class ChunkDecoder {
 public:
  // Whether this version has the codec.
  static bool knows(const ChunkInfo& chunk) noexcept;
  // Whether the chunk is the next of the chain that was decoded last.
  bool goes_on_with(const ChunkInfo& chunk) const noexcept {
    return chain_is_whole_ && chunk.first_sequence == next_sequence_;
  }
  // Whether the chunk can be decoded now: the one before it was the last to be, or it is a keyframe.
  bool is_ready_for(const ChunkInfo& chunk) const noexcept;

  // Fills `chunk.count` elements of each array. Throws FormatError when the chunk can't be read, or
  // its payload is not exactly that many events; the arrays then hold anything.
  void decode(const Source& source, const ChunkInfo& chunk, const EventColumns& out);

 private:
  static bool is_keyframe(const ChunkInfo& chunk) noexcept;

  Decoder columns_;
  HistoryDecoder history_;
  bool chain_is_whole_ = false;
  std::uint64_t next_sequence_ = 0;  // where the chain goes on
};

}  // namespace gpumemtrace
