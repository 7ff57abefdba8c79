// The chunk index at the front of a footer: one entry per chunk before it, in file order.
//
//   entry   type  codec  flags  stored_bytes  count  zigzag(first_time - last entry's last_time)
//           last_time - first_time                                             all of them varints
//
// Offsets and sequence numbers are not stored: chunks follow each other without holes from the end
// of the preamble, and events are numbered through.
#pragma once

#include <cstdint>
#include <vector>

#include "trace/format.h"
#include "trace/varint.h"

namespace gpumemtrace {

// Appends the entry of the chunk with this header; `last_time_ns` carries from entry to entry.
inline void append_index_entry(const ChunkHeader& header, std::int64_t& last_time_ns,
                               std::vector<std::uint8_t>& out) {
  std::uint8_t bytes[7 * kMaxVarintBytes];
  const auto first_time = static_cast<std::uint64_t>(header.first_time_ns);
  const auto last_time = static_cast<std::uint64_t>(header.last_time_ns);
  std::uint8_t* end = put_varint(bytes, header.type);
  end = put_varint(end, header.codec);
  end = put_varint(end, header.flags);
  end = put_varint(end, header.header_bytes + header.payload_bytes);
  end = put_varint(end, header.count);
  end = put_varint(end, zigzag(first_time - static_cast<std::uint64_t>(last_time_ns)));
  end = put_varint(end, last_time - first_time);
  last_time_ns = header.last_time_ns;
  out.insert(out.end(), bytes, end);
}

}  // namespace gpumemtrace
