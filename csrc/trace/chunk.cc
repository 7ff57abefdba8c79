#include "trace/chunk.h"

#include <cstring>

#include "trace/byte_reader.h"
#include "trace/crc32c.h"

namespace gpumemtrace {
namespace {

// Sizes and sequence numbers stay far from 2^64, so that sums of two of them don't wrap.
constexpr std::uint64_t kPossible = std::uint64_t{1} << 62;

std::vector<std::uint8_t> read_bytes(const Source& source, std::uint64_t offset,
                                     std::uint64_t size_bytes, const char* what) {
  const std::uint64_t file_size = source.size_bytes();
  if (offset > file_size || size_bytes > file_size - offset) {
    throw FormatError(FormatErrorKind::kCorrupt, offset,
                      std::string(what) + " reaches past the end of the file");
  }
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(size_bytes));
  if (bytes.empty()) return bytes;
  bytes.resize(source.read(offset, bytes.data(), bytes.size()));
  if (bytes.size() != size_bytes) {
    throw FormatError(FormatErrorKind::kCorrupt, offset,
                      std::string(what) + " is gone: the file has become shorter");
  }
  return bytes;
}

}  // namespace

ChunkHeader read_header(const Source& source, std::uint64_t offset) {
  const auto fail = [&](const std::string& message) {
    return FormatError(FormatErrorKind::kCorrupt, offset, message);
  };
  const auto fixed = read_bytes(source, offset, sizeof(ChunkHeader), "chunk header");
  ByteReader in(fixed.data(), fixed.size(), offset);
  const auto header = in.load<ChunkHeader>("chunk header");
  if (std::memcmp(header.magic, kChunkMagic, sizeof kChunkMagic) != 0) {
    throw fail("no chunk begins here");
  }
  if (header.header_bytes < sizeof(ChunkHeader) || header.header_bytes > kMaxHeaderBytes) {
    throw fail("chunk header has an impossible size");
  }
  const auto extension = read_bytes(source, offset + sizeof(ChunkHeader),
                                    header.header_bytes - sizeof(ChunkHeader), "chunk header");
  const std::uint32_t crc = crc32c(extension.data(), extension.size(),
                                   crc32c(&header, offsetof(ChunkHeader, header_crc)));
  if (crc != header.header_crc) throw fail("chunk header fails its checksum");
  if (header.version_major != kVersionMajor) {
    throw fail("chunk is of format version " + std::to_string(header.version_major));
  }
  const bool events = header.type == static_cast<std::uint16_t>(ChunkType::kEvents);
  if ((events && (header.count < 1 || header.count > kMaxEventsPerChunk)) ||
      header.first_sequence > kPossible || header.payload_bytes > kPossible ||
      header.time_resolution_ns < 1) {
    throw fail("chunk header holds impossible numbers");
  }
  return header;
}

ChunkInfo describe(const ChunkHeader& header, std::uint64_t offset) noexcept {
  return {offset,
          header.header_bytes + header.payload_bytes,
          header.first_sequence,
          header.count,
          header.first_time_ns,
          header.last_time_ns,
          header.flags,
          header.codec,
          header.type};
}

Chunk read_chunk(const Source& source, const ChunkInfo& expected) {
  const std::uint64_t offset = expected.offset;
  Chunk chunk{read_header(source, offset), 0, {}};
  const ChunkInfo found = describe(chunk.header, offset);
  if (std::memcmp(&found, &expected, sizeof found) != 0) {
    throw FormatError(FormatErrorKind::kCorrupt, offset, "chunk is not the one in the index");
  }
  chunk.payload_offset = offset + chunk.header.header_bytes;
  chunk.payload =
      read_bytes(source, chunk.payload_offset, chunk.header.payload_bytes, "chunk payload");
  if (crc32c(chunk.payload.data(), chunk.payload.size()) != chunk.header.payload_crc) {
    throw FormatError(FormatErrorKind::kCorrupt, chunk.payload_offset,
                      "chunk payload fails its checksum");
  }
  return chunk;
}

}  // namespace gpumemtrace
