// What is wrong with a trace that can be read all the same.
#pragma once

#include <cstdint>
#include <string>

#include "trace/export.h"

namespace gpumemtrace {

enum class ProblemKind {
  kDamagedPreamble,  // the first 16 bytes; the chunks say the same
  kDamagedBytes,     // a stretch in which no chunk could be found
  kDamagedChunk,     // header right, payload wrong
  kTruncated,        // the file ends inside a chunk
  kMissingChunks,    // the numbers jump though no bytes are damaged
  kForeignChunk,     // of another trace, or one that was here already
  kUnknownChunk,     // of a type newer than this reader: no events are lost
  kUnknownCodec,     // events stored in a way newer than this reader
  kDamagedIndex,     // footer or trailer; the chunks were found by walking
  kNotClosed,        // no footer: killed, or still being written
};

// snake_case, as seen from Python.
GPUMEMTRACE_API const char* name_of(ProblemKind kind) noexcept;

struct Problem {
  static constexpr std::uint64_t kUnknownCount = UINT64_MAX;

  ProblemKind kind;
  std::uint64_t offset;  // bytes from the start of the file
  std::string message;
  // Events that can't be had because of it: [first, first + count).
  std::uint64_t first_missing_sequence = 0;
  std::uint64_t missing_count = 0;
};

}  // namespace gpumemtrace
