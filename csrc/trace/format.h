// The layout of a trace file (.gmt), version 1. Little endian. docs/file-format.md says the same in
// full sentences; tests/support/format_reader.py is a second reader written from that page.
//
//   file      Preamble  Chunk  Chunk  Chunk ...  [footer Chunk  Trailer]     <- [] when closed well
//   chunk     ChunkHeader  [header extension]  payload
//
//   Preamble   0                8      10     12              16
//              | file magic     | major| minor| crc of 0..12  |
//
//   ChunkHeader
//      0 | chunk magic                                           8 bytes, never inside JSON (0xFF)
//      8 | version_major u16 | version_minor u16 | type u16 | codec u16
//     16 | flags u32                 | header_bytes u32          96 + bytes of the extension
//     24 | payload_bytes u64
//     32 | chunk_number u64                                      0, 1, 2, ... a jump = chunks lost
//     40 | first_sequence u64                                    events in the file before this chunk
//     48 | count u64                                             events (footer: index entries)
//     56 | first_time_ns i64         | last_time_ns i64          earliest and latest of the chunk
//     72 | time_resolution_ns u64
//     80 | trace_id u64                                          random, the same in all chunks
//     88 | payload_crc u32           | header_crc u32            of the header without these 4 bytes
//
//   Trailer    0                8                16              20               24
//              | end magic      | footer_offset  | reserved      | crc of 0..20   |
//
// What never changes, whatever the version: the preamble, and magic + version at the front of a
// chunk. A new MAJOR version is one that this reader would misread: it refuses by name. A new MINOR
// adds chunk types, flags, or fields in the header extension (per-device totals are to go there);
// this reader skips what it does not know.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace gpumemtrace {

static_assert(std::endian::native == std::endian::little,
              "fields are stored as they are in memory");

inline constexpr std::uint16_t kVersionMajor = 1;
inline constexpr std::uint16_t kVersionMinor = 2;

// As in PNG: the first byte is no ASCII, and a transfer that touches line ends breaks the magic.
inline constexpr std::uint8_t kFileMagic[8] = {0x89, 'G', 'M', 'T', '\r', '\n', 0x1A, '\n'};
inline constexpr std::uint8_t kChunkMagic[8] = {0xFF, 'G', 'M', 'T', 'c', 'h', 'k', 0xFE};
inline constexpr std::uint8_t kEndMagic[8] = {0xFF, 'G', 'M', 'T', 'e', 'n', 'd', 0xFE};

// Never renumber. Add at the end.
enum class ChunkType : std::uint16_t {
  kMetadata = 1,  // JSON object; later chunks win, key by key, one level deep
  kNames = 2,     // JSON object: phases, strings, threads, sites named since the last such chunk
  kEvents = 3,
  kFooter = 4,  // index of all chunks before it, then a JSON object
};

enum class Codec : std::uint16_t {
  kNone = 0,     // the payload is what it says (JSON)
  kColumns = 1,  // encoder.h
  kHistory = 2,  // history_format.h
};

enum ChunkFlags : std::uint32_t {
  kKeyframe = 1,  // decodes without any chunk before it; codec 1 always, codec 2 now and then
};

struct Preamble {
  std::uint8_t magic[8];
  std::uint16_t version_major;
  std::uint16_t version_minor;
  std::uint32_t crc;
};

struct ChunkHeader {
  std::uint8_t magic[8];
  std::uint16_t version_major;
  std::uint16_t version_minor;
  std::uint16_t type;
  std::uint16_t codec;
  std::uint32_t flags;
  std::uint32_t header_bytes;
  std::uint64_t payload_bytes;
  std::uint64_t chunk_number;
  std::uint64_t first_sequence;
  std::uint64_t count;
  std::int64_t first_time_ns;
  std::int64_t last_time_ns;
  std::uint64_t time_resolution_ns;
  std::uint64_t trace_id;
  std::uint32_t payload_crc;
  std::uint32_t header_crc;
};

struct Trailer {
  std::uint8_t magic[8];
  std::uint64_t footer_offset;
  std::uint32_t reserved;
  std::uint32_t crc;
};

static_assert(sizeof(Preamble) == 16 && offsetof(Preamble, crc) == 12);
static_assert(sizeof(ChunkHeader) == 96 && offsetof(ChunkHeader, header_crc) == 92);
static_assert(offsetof(ChunkHeader, payload_bytes) == 24 &&
              offsetof(ChunkHeader, payload_crc) == 88);
static_assert(sizeof(Trailer) == 24 && offsetof(Trailer, crc) == 20);
static_assert(std::is_trivially_copyable_v<Preamble> && std::is_trivially_copyable_v<ChunkHeader> &&
              std::is_trivially_copyable_v<Trailer>);

// A header (with its extension) is never larger.
inline constexpr std::uint32_t kMaxHeaderBytes = 65536;

// A reader need not hold more than this many events of one chunk; a writer never writes more.
inline constexpr std::uint64_t kMaxEventsPerChunk = std::uint64_t{1} << 20;

// How one column is stored: a byte with this number, then
enum class ColumnEncoding : std::uint8_t {
  kRuns = 0,    // (zigzag difference to the last run's value, length - 1) ... until all are said
  kDeltas = 1,  // zigzag difference to the last value, each a varint
  kDictionary = 2,  // varint size; that many kDeltas; then an index per value, bit-packed
};

inline constexpr std::size_t kMaxDictionarySize = 4096;

// Bits per index into a dictionary of `size` >= 1 values.
constexpr unsigned dictionary_index_bits(std::size_t size) noexcept {
  return static_cast<unsigned>(std::bit_width(size - 1));
}

// Bytes of `count` packed indices.
constexpr std::size_t packed_bytes(std::size_t count, unsigned bits) noexcept {
  return (count * bits + 7) / 8;
}

}  // namespace gpumemtrace
