#include "trace/problem.h"

namespace gpumemtrace {

const char* name_of(ProblemKind kind) noexcept {
  switch (kind) {
    case ProblemKind::kDamagedPreamble:
      return "damaged_preamble";
    case ProblemKind::kDamagedBytes:
      return "damaged_bytes";
    case ProblemKind::kDamagedChunk:
      return "damaged_chunk";
    case ProblemKind::kTruncated:
      return "truncated";
    case ProblemKind::kMissingChunks:
      return "missing_chunks";
    case ProblemKind::kForeignChunk:
      return "foreign_chunk";
    case ProblemKind::kUnknownChunk:
      return "unknown_chunk";
    case ProblemKind::kUnknownCodec:
      return "unknown_codec";
    case ProblemKind::kDamagedIndex:
      return "damaged_index";
    case ProblemKind::kNotClosed:
      return "not_closed";
  }
  return "unknown";
}

}  // namespace gpumemtrace
