#include "trace/reader.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "trace/byte_reader.h"
#include "trace/chunk_index.h"
#include "trace/chunk_walk.h"
#include "trace/crc32c.h"
#include "trace/event_buffer.h"
#include "trace/format_error.h"

namespace gpumemtrace {
namespace {

constexpr std::size_t kMostDecoders = 2;

}  // namespace

Reader::Reader(std::unique_ptr<Source> source) : source_(std::move(source)) {
  check_preamble();
  if (!open_by_index()) open_by_walk();
}

void Reader::check_preamble() {
  Preamble preamble{};
  const std::size_t got = source_->read(0, &preamble, sizeof preamble);
  if (got == 0) throw FormatError(FormatErrorKind::kNotATrace, 0, "the file is empty");
  if (std::memcmp(preamble.magic, kFileMagic, std::min(got, sizeof kFileMagic)) == 0) {
    if (got < sizeof preamble) {
      throw FormatError(FormatErrorKind::kCorrupt, got, "the file ends inside its first 16 bytes");
    }
    if (preamble.crc == crc32c(&preamble, offsetof(Preamble, crc))) {
      version_major_ = preamble.version_major;
      version_minor_ = preamble.version_minor;
      if (version_major_ == kVersionMajor) return;
      throw FormatError(FormatErrorKind::kNewerVersion, offsetof(Preamble, version_major),
                        "format version " + std::to_string(version_major_) + "." +
                            std::to_string(version_minor_) + "; this reader knows version " +
                            std::to_string(kVersionMajor));
    }
  }
  // Damaged, unless what follows is no trace either.
  try {
    const ChunkHeader header = read_header(*source_, sizeof preamble);
    version_major_ = header.version_major;
    version_minor_ = header.version_minor;
  } catch (const FormatError&) {
    if (std::memcmp(preamble.magic, kFileMagic, sizeof kFileMagic) == 0) {
      throw FormatError(FormatErrorKind::kCorrupt, 0, "the first 16 bytes fail their checksum");
    }
    throw FormatError(FormatErrorKind::kNotATrace, 0, "does not begin like a trace");
  }
  problems_.push_back({ProblemKind::kDamagedPreamble, 0, "the first 16 bytes are damaged"});
}

bool Reader::open_by_index() {
  const std::uint64_t size = source_->size_bytes();
  if (size < sizeof(Preamble) + sizeof(ChunkHeader) + sizeof(Trailer)) return false;
  const std::uint64_t trailer_offset = size - sizeof(Trailer);
  Trailer trailer{};
  if (source_->read(trailer_offset, &trailer, sizeof trailer) != sizeof trailer) return false;
  if (std::memcmp(trailer.magic, kEndMagic, sizeof kEndMagic) != 0 ||
      trailer.crc != crc32c(&trailer, offsetof(Trailer, crc))) {
    return false;
  }
  try {
    const ChunkInfo footer =
        describe(read_header(*source_, trailer.footer_offset), trailer.footer_offset);
    if (!footer.is(ChunkType::kFooter) || footer.end() != trailer_offset) return false;
    const Chunk chunk = read_chunk(*source_, footer);
    ByteReader in(chunk.payload.data(), chunk.payload.size(), chunk.payload_offset);
    const std::vector<ChunkInfo> chunks = decode_chunk_index(in, footer);
    const std::size_t json_bytes = in.remaining();
    const std::uint8_t* json = in.take(json_bytes, "footer");
    footer_.emplace(json, json + json_bytes);
    sort_out(chunks);
    return true;
  } catch (const FormatError& error) {
    problems_.push_back({ProblemKind::kDamagedIndex, error.offset(), error.what()});
    return false;
  }
}

void Reader::open_by_walk() {
  ChunkWalk walk = walk_chunks(*source_);
  for (Problem& problem : walk.problems) problems_.push_back(std::move(problem));
  sort_out(walk.chunks);
}

// By type. A footer comes here only when its trailer or index was of no use.
void Reader::sort_out(const std::vector<ChunkInfo>& chunks) {
  for (const ChunkInfo& chunk : chunks) {
    try {
      if (chunk.is(ChunkType::kEvents)) {
        events_.push_back(chunk);
      } else if (chunk.is(ChunkType::kMetadata)) {
        metadata_.push_back(read_json(chunk));
      } else if (chunk.is(ChunkType::kNames)) {
        names_.push_back(read_json(chunk));
      } else if (chunk.is(ChunkType::kFooter)) {
        footer_ = read_json(chunk);
      } else {
        report(
            ProblemKind::kUnknownChunk, chunk,
            "a chunk of type " + std::to_string(chunk.type) + ", which this version does not know");
      }
    } catch (const FormatError& error) {
      report(ProblemKind::kDamagedChunk, chunk, error.what());
    }
  }
}

std::string Reader::read_json(const ChunkInfo& chunk) {
  const Chunk whole = read_chunk(*source_, chunk);
  ByteReader in(whole.payload.data(), whole.payload.size(), whole.payload_offset);
  if (chunk.is(ChunkType::kFooter)) decode_chunk_index(in, chunk);
  const std::size_t size = in.remaining();
  const std::uint8_t* json = in.take(size, "JSON");
  return {json, json + size};
}

std::uint64_t Reader::count(std::size_t first, std::size_t last) const {
  if (first > last || last > events_.size()) throw std::out_of_range("no such chunks");
  std::uint64_t count = 0;
  for (std::size_t i = first; i < last; ++i) count += events_[i].count;
  return count;
}

std::uint64_t Reader::read(std::size_t first, std::size_t last, const EventColumns& out) {
  count(first, last);
  if (first == last) return 0;
  std::unique_ptr<ChunkDecoder> decoder = take_decoder(events_[first]);
  lead_up_to(first, *decoder);
  std::uint64_t done = 0;
  for (std::size_t i = first; i < last; ++i) {
    const ChunkInfo& chunk = events_[i];
    if (decode(chunk, *decoder, out.from(static_cast<std::size_t>(done)))) done += chunk.count;
  }
  const std::scoped_lock lock(mutex_);
  if (decoders_.size() == kMostDecoders) decoders_.erase(decoders_.begin());
  decoders_.push_back(std::move(decoder));
  return done;
}

std::unique_ptr<ChunkDecoder> Reader::take_decoder(const ChunkInfo& chunk) {
  const std::scoped_lock lock(mutex_);
  auto found = std::find_if(decoders_.begin(), decoders_.end(),
                            [&](const auto& decoder) { return decoder->goes_on_with(chunk); });
  if (found == decoders_.end() && decoders_.size() == kMostDecoders) found = decoders_.begin();
  if (found == decoders_.end()) return std::make_unique<ChunkDecoder>();
  std::unique_ptr<ChunkDecoder> decoder = std::move(*found);
  decoders_.erase(found);
  return decoder;
}

void Reader::lead_up_to(std::size_t index, ChunkDecoder& decoder) {
  std::size_t start = index;
  while (!decoder.is_ready_for(events_[start])) {
    const ChunkInfo& chunk = events_[start];
    // Nothing to build on, then: decode() will say so.
    if (start == 0 || !ChunkDecoder::knows(chunk)) return;
    const ChunkInfo& before = events_[start - 1];
    if (before.first_sequence + before.count != chunk.first_sequence) return;
    if (is_known_bad(before)) return;
    --start;
  }
  EventBuffer buffer;
  for (; start < index; ++start) {
    if (!decode(events_[start], decoder, buffer.columns(events_[start].count))) return;
  }
}

bool Reader::is_known_bad(const ChunkInfo& chunk) const {
  const std::scoped_lock lock(mutex_);
  return reported_.contains(chunk.offset);
}

bool Reader::decode(const ChunkInfo& chunk, ChunkDecoder& decoder, const EventColumns& out) {
  if (!ChunkDecoder::knows(chunk)) {
    report(ProblemKind::kUnknownCodec, chunk,
           "events in codec " + std::to_string(chunk.codec) +
               ", which this version can't read; a newer gpumemtrace can");
    return false;
  }
  try {
    decoder.decode(*source_, chunk, out);
    return true;
  } catch (const FormatError& error) {
    report(ProblemKind::kDamagedChunk, chunk, error.what());
    return false;
  }
}

std::vector<Problem> Reader::problems() const {
  const std::scoped_lock lock(mutex_);
  return problems_;
}

void Reader::report(ProblemKind kind, const ChunkInfo& chunk, std::string message) {
  const std::scoped_lock lock(mutex_);
  if (!reported_.insert(chunk.offset).second) return;
  const bool events = chunk.is(ChunkType::kEvents);
  problems_.push_back({kind, chunk.offset, std::move(message), events ? chunk.first_sequence : 0,
                       events ? chunk.count : 0});
}

}  // namespace gpumemtrace
