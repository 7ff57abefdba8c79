#include "trace/chunk_index.h"

#include <limits>

#include "trace/varint.h"

namespace gpumemtrace {

void ChunkIndexEncoder::append(const ChunkInfo& chunk) {
  const auto first_time = static_cast<std::uint64_t>(chunk.first_time_ns);
  const auto last_time = static_cast<std::uint64_t>(chunk.last_time_ns);
  std::uint8_t bytes[7 * kMaxVarintBytes];
  std::uint8_t* end = put_varint(bytes, chunk.type);
  end = put_varint(end, chunk.codec);
  end = put_varint(end, chunk.flags);
  end = put_varint(end, chunk.stored_bytes);
  end = put_varint(end, chunk.count);
  end = put_varint(end, zigzag(first_time - last_time_ns_));
  end = put_varint(end, last_time - first_time);
  bytes_.insert(bytes_.end(), bytes, end);
  last_time_ns_ = last_time;
}

std::vector<ChunkInfo> decode_chunk_index(ByteReader& in, const ChunkInfo& footer) {
  const auto narrow = [&]<class Field>(Field& field) {
    const std::uint64_t value = in.varint("index entry");
    if (value > std::numeric_limits<Field>::max())
      in.fail("index entry", "holds too large a number");
    field = static_cast<Field>(value);
  };
  std::vector<ChunkInfo> chunks;
  std::uint64_t offset = sizeof(Preamble);
  std::uint64_t sequence = 0;
  std::uint64_t last_time_ns = 0;
  for (std::uint64_t i = 0; i < footer.count; ++i) {
    ChunkInfo chunk{};
    narrow(chunk.type);
    narrow(chunk.codec);
    narrow(chunk.flags);
    chunk.stored_bytes = in.varint("index entry");
    chunk.count = in.varint("index entry");
    chunk.offset = offset;
    chunk.first_sequence = sequence;
    last_time_ns += unzigzag(in.varint("index entry"));
    chunk.first_time_ns = static_cast<std::int64_t>(last_time_ns);
    last_time_ns += in.varint("index entry");
    chunk.last_time_ns = static_cast<std::int64_t>(last_time_ns);
    if (chunk.stored_bytes > footer.offset - offset) in.fail("index", "leads past the footer");
    if (chunk.is(ChunkType::kEvents)) {
      if (chunk.count > kMaxEventsPerChunk) in.fail("index entry", "holds too many events");
      sequence += chunk.count;
    }
    offset += chunk.stored_bytes;
    chunks.push_back(chunk);
  }
  if (offset != footer.offset || sequence != footer.first_sequence) {
    in.fail("index", "does not lead to the footer");
  }
  return chunks;
}

}  // namespace gpumemtrace
