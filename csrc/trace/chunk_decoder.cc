#include "trace/chunk_decoder.h"

#include "trace/byte_reader.h"
#include "trace/format_error.h"

namespace gpumemtrace {
namespace {

bool has_codec(const ChunkInfo& chunk, Codec codec) noexcept {
  return chunk.codec == static_cast<std::uint16_t>(codec);
}

}  // namespace

bool ChunkDecoder::knows(const ChunkInfo& chunk) noexcept {
  return has_codec(chunk, Codec::kColumns) || has_codec(chunk, Codec::kHistory);
}

bool ChunkDecoder::is_keyframe(const ChunkInfo& chunk) noexcept {
  return has_codec(chunk, Codec::kColumns) || (chunk.flags & kKeyframe) != 0;
}

bool ChunkDecoder::is_ready_for(const ChunkInfo& chunk) const noexcept {
  return is_keyframe(chunk) || goes_on_with(chunk);
}

void ChunkDecoder::decode(const Source& source, const ChunkInfo& info, const EventColumns& out) {
  if (!is_ready_for(info)) {
    throw FormatError(FormatErrorKind::kCorrupt, info.offset,
                      "a chunk that this one builds on is damaged or missing");
  }
  const bool chained = has_codec(info, Codec::kHistory);
  if (chained) chain_is_whole_ = false;  // until all went well
  const Chunk chunk = read_chunk(source, info);
  const ByteReader in(chunk.payload.data(), chunk.payload.size(), chunk.payload_offset);
  const auto count = static_cast<std::size_t>(info.count);
  if (!chained) return columns_.decode(in, count, chunk.header.time_resolution_ns, out);
  if (is_keyframe(info)) history_.reset();
  history_.decode(in, count, chunk.header.time_resolution_ns, out);
  chain_is_whole_ = true;
  next_sequence_ = info.first_sequence + info.count;
}

}  // namespace gpumemtrace
