// Finds the chunks of a file that was not closed, or is damaged: from header to header, and after a
// bad one by looking for the next chunk magic.
#pragma once

#include <vector>

#include "trace/chunk.h"
#include "trace/problem.h"
#include "trace/source.h"

namespace gpumemtrace {

struct ChunkWalk {
  std::vector<ChunkInfo> chunks;  // in file order, the footer too; sequences ascend
  std::vector<Problem> problems;
};

// Reads headers only: payloads are not looked at.
ChunkWalk walk_chunks(const Source& source);

}  // namespace gpumemtrace
