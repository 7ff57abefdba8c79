// Small trace files in memory, and ways to harm them.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "event_table.h"
#include "sinks.h"
#include "trace/crc32c.h"
#include "trace/format.h"
#include "trace/writer.h"

namespace gpumemtrace {

using Bytes = std::vector<std::uint8_t>;

// Run record, names, and `events` in chunks of ten; not closed unless asked. In codec 2 every second
// chunk is a keyframe.
inline Bytes small_trace(const std::vector<Event>& events, bool closed, std::uint64_t trace_id = 77,
                         Codec codec = Codec::kColumns) {
  Bytes bytes;
  Writer writer(
      std::make_unique<MemorySink>(bytes),
      {.events_per_chunk = 10, .trace_id = trace_id, .codec = codec, .events_per_keyframe = 20});
  writer.write_metadata("{\"pid\": 1}", 10);
  writer.append(events.data(), events.size());
  writer.flush();
  writer.write_names("{\"phases\": []}", 14);
  if (closed) writer.close("{\"reason\": \"end\"}", 17);
  return bytes;
}

// Offsets of the chunk headers of an undamaged file.
inline std::vector<std::size_t> chunk_offsets(const Bytes& bytes) {
  std::vector<std::size_t> offsets;
  std::size_t at = sizeof(Preamble);
  while (at + sizeof(ChunkHeader) <= bytes.size()) {
    ChunkHeader header;
    std::memcpy(&header, bytes.data() + at, sizeof header);
    offsets.push_back(at);
    at += header.header_bytes + header.payload_bytes;
  }
  return offsets;
}

inline Bytes first_bytes(const Bytes& bytes, std::size_t count) {
  return {bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count)};
}

// The same without the bytes `first` to `end` (exclusive).
inline Bytes without(Bytes bytes, std::size_t first, std::size_t end) {
  bytes.erase(bytes.begin() + static_cast<std::ptrdiff_t>(first),
              bytes.begin() + static_cast<std::ptrdiff_t>(end));
  return bytes;
}

// Makes every checksum right that can be found, so that damage gets past them: what remains are
// files made to hurt.
inline void repair_checksums(Bytes& bytes) {
  const auto seal = [&](std::size_t at, std::size_t size) {
    const std::uint32_t crc = crc32c(bytes.data() + at, size);
    std::memcpy(bytes.data() + at + size, &crc, sizeof crc);
  };
  if (bytes.size() < sizeof(Preamble)) return;
  seal(0, offsetof(Preamble, crc));
  std::size_t at = sizeof(Preamble);
  while (bytes.size() - at >= sizeof(ChunkHeader)) {
    ChunkHeader header;
    std::memcpy(&header, bytes.data() + at, sizeof header);
    const std::size_t room = bytes.size() - at;
    if (header.header_bytes < sizeof header || header.header_bytes > room) break;
    const bool whole = header.payload_bytes <= room - header.header_bytes;
    if (whole) {
      header.payload_crc = crc32c(bytes.data() + at + header.header_bytes, header.payload_bytes);
    }
    header.header_crc =
        crc32c(bytes.data() + at + sizeof header, header.header_bytes - sizeof header,
               crc32c(&header, offsetof(ChunkHeader, header_crc)));
    std::memcpy(bytes.data() + at, &header, sizeof header);
    if (!whole) break;
    at += header.header_bytes + header.payload_bytes;
  }
  if (bytes.size() - at == sizeof(Trailer)) seal(at, offsetof(Trailer, crc));
}

}  // namespace gpumemtrace
