#include "trace/chunk_walk.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "trace/crc32c.h"
#include "trace/format_error.h"

namespace gpumemtrace {
namespace {

constexpr std::size_t kScanWindowBytes = std::size_t{1} << 20;

// The first offset >= `from` where a chunk with a valid header begins; none = the end of the file.
std::uint64_t find_chunk(const Source& source, std::uint64_t from) {
  const std::uint64_t size = source.size_bytes();
  if (from >= size) return size;
  std::vector<std::uint8_t> window(
      static_cast<std::size_t>(std::min<std::uint64_t>(kScanWindowBytes, size - from)));
  while (from < size) {
    const std::size_t got = source.read(from, window.data(), window.size());
    if (got < sizeof kChunkMagic) break;
    const std::uint8_t* at = window.data();
    const std::uint8_t* const end = at + got;
    while ((at = static_cast<const std::uint8_t*>(::memmem(at, static_cast<std::size_t>(end - at),
                                                           kChunkMagic, sizeof kChunkMagic))) !=
           nullptr) {
      const std::uint64_t offset = from + static_cast<std::uint64_t>(at - window.data());
      try {
        read_header(source, offset);
        return offset;
      } catch (const FormatError&) {
        ++at;  // these eight bytes by chance, or a chunk that is damaged too
      }
    }
    from += got - (sizeof kChunkMagic - 1);
  }
  return size;
}

class Walker {
 public:
  explicit Walker(const Source& source) : source_(source) {}

  ChunkWalk walk() {
    std::uint64_t offset = sizeof(Preamble);
    while (offset < source_.size_bytes()) {
      try {
        offset = step(offset);
      } catch (const FormatError& error) {
        if (is_trailer(offset)) return std::move(result_);
        const std::uint64_t next = find_chunk(source_, where_to_search(offset));
        if (next > offset) report_damage(offset, next, error.what());
        offset = next;
      }
    }
    report(ProblemKind::kNotClosed, source_.size_bytes(),
           closed_ ? "the trailer is missing"
                   : "the file was not closed: its writer was killed, or is still writing");
    return std::move(result_);
  }

 private:
  // Takes in the chunk at `offset`; returns where the next one begins.
  std::uint64_t step(std::uint64_t offset) {
    const ChunkHeader header = read_header(source_, offset);
    const ChunkInfo chunk = describe(header, offset);
    if (chunk.end() > source_.size_bytes()) return step_over_cut(header, chunk);
    if (is_foreign(header)) {
      report(ProblemKind::kForeignChunk, offset,
             "a chunk of another trace, or one that was here before");
      return chunk.end();
    }
    note_missing(header, offset);
    accept(header, chunk);
    return chunk.end();
  }

  // The header is right but the payload is not all there: the file ends here, or lost bytes in the
  // middle, and the next chunk begins too early.
  std::uint64_t step_over_cut(const ChunkHeader& header, const ChunkInfo& chunk) {
    const std::uint64_t next = find_chunk(source_, chunk.offset + header.header_bytes);
    if (is_foreign(header)) return next;
    note_missing(header, chunk.offset);
    const bool events = chunk.is(ChunkType::kEvents);
    const bool at_end = next == source_.size_bytes();
    report(at_end ? ProblemKind::kTruncated : ProblemKind::kDamagedBytes, chunk.offset,
           at_end ? "the file ends inside this chunk" : "bytes of this chunk are missing",
           next_sequence_, events ? chunk.count : 0);
    next_sequence_ += events ? chunk.count : 0;
    next_number_ = header.chunk_number + 1;
    return next;
  }

  // No chunk begins at `offset`, where the last one is said to end. If that one lost bytes, the next
  // began before.
  std::uint64_t where_to_search(std::uint64_t offset) {
    if (!last_ || last_->end() != offset) return offset + 1;
    const ChunkInfo last = *last_;
    last_.reset();
    try {
      read_chunk(source_, last);
      return offset + 1;
    } catch (const FormatError&) {
      return last.offset + sizeof(ChunkHeader);
    }
  }

  bool is_foreign(const ChunkHeader& header) const noexcept {
    if (trace_id_ && header.trace_id != *trace_id_) return true;
    return header.chunk_number < next_number_ || header.first_sequence < next_sequence_;
  }

  // Events between the last chunk and this one: lost with the damaged bytes before it, if any.
  void note_missing(const ChunkHeader& header, std::uint64_t offset) {
    const std::uint64_t missing = header.first_sequence - next_sequence_;
    if (damage_) {
      Problem& damage = result_.problems[*damage_];
      damage.missing_count = missing;
    } else if (header.chunk_number != next_number_ || missing != 0) {
      report(ProblemKind::kMissingChunks, offset,
             std::to_string(header.chunk_number - next_number_) + " chunks are missing here",
             next_sequence_, missing);
    }
    damage_.reset();
    next_sequence_ = header.first_sequence;
    trace_id_ = header.trace_id;
  }

  void accept(const ChunkHeader& header, const ChunkInfo& chunk) {
    if (chunk.is(ChunkType::kEvents)) next_sequence_ += chunk.count;
    if (chunk.is(ChunkType::kFooter)) closed_ = true;
    next_number_ = header.chunk_number + 1;
    last_ = chunk;
    result_.chunks.push_back(chunk);
  }

  // What was lost with the bytes is known only when the next chunk says its number.
  void report_damage(std::uint64_t offset, std::uint64_t end, const std::string& why) {
    if (damage_) return;
    damage_ = result_.problems.size();
    const bool tail = end == source_.size_bytes();
    report(tail && end - offset < sizeof(ChunkHeader) ? ProblemKind::kTruncated
                                                      : ProblemKind::kDamagedBytes,
           offset, why + " (" + std::to_string(end - offset) + " bytes passed over)",
           next_sequence_, Problem::kUnknownCount);
  }

  // Behind a footer, and right: then it is not why we had to walk.
  bool is_trailer(std::uint64_t offset) const {
    Trailer trailer{};
    return closed_ && source_.size_bytes() - offset == sizeof trailer &&
           source_.read(offset, &trailer, sizeof trailer) == sizeof trailer &&
           std::memcmp(trailer.magic, kEndMagic, sizeof kEndMagic) == 0 &&
           trailer.crc == crc32c(&trailer, offsetof(Trailer, crc));
  }

  void report(ProblemKind kind, std::uint64_t offset, std::string message,
              std::uint64_t first_missing = 0, std::uint64_t missing = 0) {
    result_.problems.push_back({kind, offset, std::move(message), first_missing, missing});
  }

  const Source& source_;
  ChunkWalk result_;
  std::optional<std::uint64_t> trace_id_;
  std::optional<std::size_t> damage_;  // index of the problem whose loss is not yet known
  std::optional<ChunkInfo> last_;
  std::uint64_t next_number_ = 0;
  std::uint64_t next_sequence_ = 0;
  bool closed_ = false;
};

}  // namespace

ChunkWalk walk_chunks(const Source& source) { return Walker(source).walk(); }

}  // namespace gpumemtrace
