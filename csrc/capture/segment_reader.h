// What a segment says that its process has left, taken as bytes that anybody may have written.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "capture/segment_layout.h"
#include "trace/event.h"

namespace gpumemtrace::capture {

// The bytes can't be a segment, or are one of another version. The message says why.
class SegmentError final : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What was not in the file, as the segment has it.
struct LeftBehind {
  std::vector<Event> events;         // in order, times in ns since the trace began
  std::string names_json;            // for Writer::write_names; empty = none
  std::uint64_t names_left_out = 0;  // for which there was no room
};

// Its trace ended before its process did: there is nothing in it.
bool is_retired(int descriptor);

// Reads from the descriptor of a file of `size_bytes`. Throws SegmentError, std::system_error.
SegmentHeader read_segment_header(int descriptor, std::uint64_t size_bytes);

bool is_file(const FileProgress& file, const struct stat& status) noexcept;

// How far the drain had come. Throws SegmentError when nothing was entered, or nonsense.
Progress read_progress(int descriptor);

// Of a segment whose process has ended.
LeftBehind read_segment(int descriptor, const SegmentHeader& header, const Progress& progress);

}  // namespace gpumemtrace::capture
