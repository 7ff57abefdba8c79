// A trace file, opened for reading: what is in it, what is wrong with it, and its events.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "trace/chunk.h"
#include "trace/chunk_decoder.h"
#include "trace/event_columns.h"
#include "trace/export.h"
#include "trace/problem.h"
#include "trace/source.h"

namespace gpumemtrace {

// Any thread. Opening reads headers, run record and names; events are read when asked for.
class GPUMEMTRACE_API Reader {
 public:
  // Throws FormatError when this is no trace, one of a newer version, or one of which nothing can
  // be read; std::system_error when the system can't read.
  explicit Reader(std::unique_ptr<Source> source);

  // The chunks that hold events, in file order.
  const std::vector<ChunkInfo>& chunks() const noexcept { return events_; }
  // Payloads of the metadata and names chunks, in file order; of the footer, behind its index.
  const std::vector<std::string>& metadata() const noexcept { return metadata_; }
  const std::vector<std::string>& names() const noexcept { return names_; }
  const std::optional<std::string>& footer() const noexcept { return footer_; }
  std::uint16_t version_major() const noexcept { return version_major_; }
  std::uint16_t version_minor() const noexcept { return version_minor_; }
  std::uint64_t size_bytes() const noexcept { return source_->size_bytes(); }

  // Events of chunks [first, last), if all can be read.
  std::uint64_t count(std::size_t first, std::size_t last) const;
  // Decodes chunks [first, last) one after the other into `out`, which has room for count(first,
  // last). A damaged chunk is left out and becomes a problem. Returns the number of events.
  std::uint64_t read(std::size_t first, std::size_t last, const EventColumns& out);

  // Those found so far: at opening, and by read(). Payloads are checked only as they are read.
  std::vector<Problem> problems() const;

 private:
  void check_preamble();
  bool open_by_index();
  void open_by_walk();
  void sort_out(const std::vector<ChunkInfo>& chunks);
  std::string read_json(const ChunkInfo& chunk);
  // The one that can go on with the chunk, else another. Give it back to decoders_.
  std::unique_ptr<ChunkDecoder> take_decoder(const ChunkInfo& chunk);
  // Decodes what event chunk `index` builds on, as far as `decoder` doesn't have it yet.
  void lead_up_to(std::size_t index, ChunkDecoder& decoder);
  bool is_known_bad(const ChunkInfo& chunk) const;
  // Decodes one chunk, or says in a problem why not.
  bool decode(const ChunkInfo& chunk, ChunkDecoder& decoder, const EventColumns& out);
  void report(ProblemKind kind, const ChunkInfo& chunk, std::string message);

  std::unique_ptr<Source> source_;
  std::uint16_t version_major_ = 0;
  std::uint16_t version_minor_ = 0;
  std::vector<ChunkInfo> events_;
  std::vector<std::string> metadata_;
  std::vector<std::string> names_;
  std::optional<std::string> footer_;

  mutable std::mutex mutex_;  // of those below
  // Those of the last calls of read(), two of them, so that two passes can take turns: where the
  // next call goes on, the chain need not be decoded again.
  std::vector<std::unique_ptr<ChunkDecoder>> decoders_;
  std::vector<Problem> problems_;
  std::set<std::uint64_t> reported_;  // offsets of chunks already known to be damaged
};

}  // namespace gpumemtrace
