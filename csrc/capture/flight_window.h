// The latest part of a trace, kept in memory: chunks as a Writer makes them, and what the events of
// those that had to go have left.
//
//      gone             |  keyframe group   |  keyframe group   |  keyframe group ...
//   -> FlightBaseline   |  chunk chunk ...  |  chunk chunk ...  |  chunk ...            write_to(file)
//
// Groups go whole, oldest first, once the next one reaches back far enough, or memory is short.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "capture/flight_baseline.h"
#include "trace/chunk_decoder.h"
#include "trace/event_buffer.h"
#include "trace/format.h"
#include "trace/sink.h"
#include "trace/writer.h"

namespace gpumemtrace::capture {

struct FlightWindowOptions {
  std::uint64_t window_ns = 0;
  std::uint64_t most_bytes = 0;  // of the chunks; the last group stays, however large
};

// One thread at a time. The sink's Writer must not outlive it.
class FlightWindow {
 public:
  explicit FlightWindow(FlightWindowOptions options) : options_(options) {}

  // For the one Writer that fills it.
  std::unique_ptr<Sink> make_sink();
  // Lets go of what is too old or too much. May throw std::bad_alloc, or FormatError where memory
  // was overwritten.
  void trim();
  // When the newest group began; the Writer should begin another now and then.
  std::int64_t group_began_ns() const noexcept { return group_began_ns_; }

  // Run record, names, what was before, and all that is kept. `about` are members of the record's
  // "flight_recorder" object, from `"key":` on.
  bool write_to(Writer& writer, const std::string& about);

  std::uint64_t bytes() const noexcept { return bytes_; }
  const FlightBaseline& before() const noexcept { return before_; }

 private:
  class IntoWindow;
  using Bytes = std::vector<std::uint8_t>;
  struct Stored {
    ChunkHeader header;
    Bytes bytes;  // header and payload
  };
  // Names beyond these stay only as long as the events beside them.
  static constexpr std::size_t kMostNamesBytes = std::size_t{4} << 20;

  void take(const void* data, std::size_t size_bytes);
  void let_first_go();
  bool second_group_reaches_back() const;

  FlightWindowOptions options_;
  std::map<std::string, std::string> metadata_;  // by key, which keeps its quotes
  std::vector<Bytes> names_;                     // payloads
  std::size_t names_bytes_ = 0;
  std::deque<Stored> chunks_;
  std::deque<std::int64_t> group_begins_ns_;  // of each group in chunks_
  std::uint64_t bytes_ = 0;
  std::int64_t group_began_ns_ = 0;
  std::int64_t newest_ns_ = 0;
  FlightBaseline before_;
  ChunkDecoder decoder_;
  EventBuffer decoded_;
};

}  // namespace gpumemtrace::capture
