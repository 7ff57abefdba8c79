// Events and run record -> chunks -> sink.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trace/chunk_index.h"
#include "trace/encoder.h"
#include "trace/event.h"
#include "trace/export.h"
#include "trace/format.h"
#include "trace/history_encoder.h"
#include "trace/sink.h"

namespace gpumemtrace {

struct WriterOptions {
  std::uint64_t time_resolution_ns = 1;    // >= 1; coarser is smaller
  std::uint32_t events_per_chunk = 65536;  // 1 .. kMaxEventsPerChunk
  std::uint64_t trace_id = 0;              // 0: a random one
  Codec codec = Codec::kHistory;
  // Codec 2: reading can start in such distances, and a damaged chunk takes with it what follows up
  // to the next such place. Shorter is larger. >= 1.
  std::uint64_t events_per_keyframe = std::uint64_t{1} << 20;
  std::uint64_t bytes_per_keyframe = UINT64_MAX;  // the same, in bytes of chunks; >= 1
  // Where events wait for their chunk, room for events_per_chunk of them; nullptr: in memory of the
  // writer's own. Must outlive it.
  Event* stage = nullptr;
  bool keeps_index = true;  // false: will never be closed, so its memory must not grow for that
};

// What stands in a file that another writer began.
struct WrittenBefore {
  std::vector<ChunkInfo> chunks;  // for the index
  std::uint64_t next_chunk_number = 0;
  std::uint64_t events = 0;  // = sequence number of the next one
  std::uint64_t bytes = 0;   // where the next chunk will stand
};

// One thread at a time. After construction nothing throws: each call returns false from the first
// error on, writes nothing more, and error() says what it was. Each chunk goes to the sink in one
// write, so that a reader of the growing file sees whole chunks.
class GPUMEMTRACE_API Writer {
 public:
  // Writes the preamble. Throws std::invalid_argument for options out of range.
  Writer(std::unique_ptr<Sink> sink, WriterOptions options);
  // Goes on with a file, whose trace id options give. Writes no preamble.
  Writer(std::unique_ptr<Sink> sink, WriterOptions options, const WrittenBefore& before);
  // Without close() before it the file stays as a killed process would leave it.
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // A JSON object in UTF-8. Readers merge successive ones: later keys win, one level deep.
  bool write_metadata(const char* json, std::size_t size_bytes) noexcept;
  // {"phases": [[id, parent, "name"], ...], "strings": [[id, "text"], ...],
  //  "threads": [[index, os_tid, "name"], ...], and the tables of sites: docs/file-format.md};
  // readers join successive ones.
  bool write_names(const char* json, std::size_t size_bytes) noexcept;
  // Events in order, `time` in ns since the trace began (as signed). They wait in the stage: a full
  // one goes out when more come, the rest with flush() or close(), and before any JSON. They may lie
  // at free_stage(), or where that was before a flush, and are copied only if need be then.
  bool append(const Event* events, std::size_t count) noexcept;
  bool flush() noexcept;
  // The next chunk of events to begin will be a keyframe; unless the one begun is.
  void begin_keyframe() noexcept;
  // A chunk that another Writer has made, with the same time resolution: events of a chain in their
  // order, a keyframe first. It is numbered anew.
  bool append_chunk(const ChunkHeader& header, const std::uint8_t* payload) noexcept;
  // The file is not to grow beyond: a write that would is an error (EFBIG), of which nothing is
  // written.
  void limit(std::uint64_t most_bytes) noexcept { most_bytes_ = most_bytes; }
  // Events wait in `stage` from now on, see WriterOptions; not while some do already.
  void use_stage(Event* stage) noexcept;
  // Flush, footer (chunk index + a JSON object), trailer. Idempotent.
  bool close(const char* footer_json, std::size_t size_bytes) noexcept;

  // What the first error was ("" = none), and its errno (0 = none, or not from the system).
  const char* error() const noexcept { return error_; }
  int error_number() const noexcept { return error_number_; }

  std::uint64_t bytes_written() const noexcept { return bytes_written_; }
  // Events in chunks that the sink took; those still waiting are not counted.
  std::uint64_t events_written() const noexcept { return events_written_; }
  // Events in the stage, and how many more append() takes without writing.
  std::size_t staged() const noexcept { return staged_; }
  std::size_t room() const noexcept { return options_.events_per_chunk - staged_; }
  // Where the next room() events will wait: whoever has them made there saves a copy.
  Event* free_stage() const noexcept { return stage_ + staged_; }
  // Offsets of the chunks of codec 2 at which reading can start; none without an index.
  const std::vector<std::uint64_t>& keyframes() const noexcept { return keyframes_; }
  // With the trace_id that was chosen.
  const WriterOptions& options() const noexcept { return options_; }
  // The sink's, while this lives; -1 = it has none.
  int descriptor() const noexcept { return sink_->descriptor(); }

 private:
  void check_options();
  void prepare();  // memory
  bool ok() const noexcept { return error_[0] == '\0'; }
  bool fail(const char* error, int error_number) noexcept;
  bool write_json(ChunkType type, const char* json, std::size_t size_bytes) noexcept;
  // Begins chunk_ with room for its header; the payload is appended to it.
  void begin_chunk();
  // Completes the header of chunk_ (sizes, number, checksums), enters it in the index, writes it.
  bool end_chunk(ChunkHeader header);
  void note_keyframe(const ChunkHeader& header);
  // Puts events, for which there is room, into the stage.
  bool stage(const Event* events, std::size_t count) noexcept;
  void begin_events() noexcept;  // the first of a chunk come
  bool write(const void* data, std::size_t size_bytes) noexcept;

  std::unique_ptr<Sink> sink_;
  WriterOptions options_;
  Encoder encoder_;                                  // codec 1
  std::unique_ptr<HistoryEncoder> history_encoder_;  // codec 2
  std::uint64_t events_since_keyframe_ = 0;          // before the chunk begun; 0: it is one
  bool keyframe_is_due_ = false;                     // behind the chunk begun
  std::uint64_t keyframe_offset_ = 0;                // of the last one
  std::vector<std::uint64_t> keyframes_;
  std::unique_ptr<Event[]> own_stage_;
  Event* stage_ = nullptr;
  // Of the chunk begun, if staged_ != 0:
  std::size_t staged_ = 0;
  std::size_t encoded_ = 0;  // of those staged, by codec 2
  bool is_keyframe_ = false;
  std::int64_t first_time_ns_ = 0;
  std::int64_t last_time_ns_ = 0;
  std::vector<std::uint8_t> chunk_;
  ChunkIndexEncoder index_;
  std::uint64_t chunks_written_ = 0;
  std::uint64_t events_written_ = 0;
  std::uint64_t bytes_written_ = 0;
  std::uint64_t most_bytes_ = UINT64_MAX;
  bool closed_ = false;
  const char* error_ = "";
  int error_number_ = 0;
};

}  // namespace gpumemtrace
