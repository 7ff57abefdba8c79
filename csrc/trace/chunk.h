// One chunk in a file: its header, and its checked payload.
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include "trace/format.h"
#include "trace/source.h"

namespace gpumemtrace {

// What is known of a chunk without reading its payload. Seen from Python as one row of an array.
struct ChunkInfo {
  std::uint64_t offset;        // of its header in the file
  std::uint64_t stored_bytes;  // header and payload
  std::uint64_t first_sequence;
  std::uint64_t count;
  std::int64_t first_time_ns;
  std::int64_t last_time_ns;
  std::uint32_t flags;
  std::uint16_t codec;
  std::uint16_t type;

  std::uint64_t end() const noexcept { return offset + stored_bytes; }
  bool is(ChunkType wanted) const noexcept { return type == static_cast<std::uint16_t>(wanted); }
};
static_assert(std::has_unique_object_representations_v<ChunkInfo>);  // no padding: memcmp is fair

// The header at `offset`, its checksum right and its numbers possible. Throws FormatError.
// That the payload is there, all of it, is not looked at.
ChunkHeader read_header(const Source& source, std::uint64_t offset);

ChunkInfo describe(const ChunkHeader& header, std::uint64_t offset) noexcept;

struct Chunk {
  ChunkHeader header;
  std::uint64_t payload_offset;
  std::vector<std::uint8_t> payload;
};

// The whole chunk, checksums right, and what `expected` says of it true. Throws FormatError.
Chunk read_chunk(const Source& source, const ChunkInfo& expected);

}  // namespace gpumemtrace
