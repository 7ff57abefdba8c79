// The chunk index at the front of a footer's payload: one entry per chunk before it, in file order.
//
//   entry   type  codec  flags  stored_bytes  count  zigzag(first_time - last entry's last_time)
//           last_time - first_time                                             all of them varints
//
// Offsets and sequence numbers are not stored: chunks follow each other without holes from the end
// of the preamble, and events are numbered through.
#pragma once

#include <cstdint>
#include <vector>

#include "trace/byte_reader.h"
#include "trace/chunk.h"

namespace gpumemtrace {

// Builds the index as chunks are written; a few bytes for each.
class ChunkIndexEncoder {
 public:
  void append(const ChunkInfo& chunk);
  const std::vector<std::uint8_t>& bytes() const noexcept { return bytes_; }

 private:
  std::vector<std::uint8_t> bytes_;
  std::uint64_t last_time_ns_ = 0;
};

// Reads the `footer.count` entries at the front of `in`, which stands behind them afterwards. Throws
// FormatError when they don't lead exactly from the preamble to the footer.
std::vector<ChunkInfo> decode_chunk_index(ByteReader& in, const ChunkInfo& footer);

}  // namespace gpumemtrace
