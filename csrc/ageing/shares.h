// How the room that a trace may take is shared out.
//
// At every moment the file, and beside it the smaller one that is to take its place, together stay
// below the limit. Rewriting starts when the file has 7/16 of it. While it goes on, both grow by what
// is recorded meanwhile: an eighth at most, or recording waits for it.
//
//   file when rewriting starts  28/64 |  new file without it  17/64 |  what came meanwhile, twice
//   8/64 + 8/64 |  spare  3/64
//
// The new file holds
//   first steps   1/32    full detail
//   unusual ones  2/32    full detail, the least unusual and oldest left out first
//   last steps    2/32    full detail
//   summaries     3/32    of the rest; told for more and more steps together when it gets tight
#pragma once

#include <algorithm>
#include <cstdint>

namespace gpumemtrace::ageing {

struct Shares {
  static constexpr std::uint64_t kLeastBytes = std::uint64_t{1} << 20;

  std::uint64_t most_bytes;  // the limit, >= kLeastBytes

  std::uint64_t start_bytes() const noexcept { return most_bytes / 16 * 7; }
  std::uint64_t rewritten_bytes() const noexcept { return most_bytes / 4; }
  std::uint64_t first_bytes() const noexcept { return most_bytes / 32; }
  std::uint64_t unusual_bytes() const noexcept { return most_bytes / 16; }
  std::uint64_t last_bytes() const noexcept { return most_bytes / 16; }
  // Of first steps, unusual ones and summaries: what comes before the last steps.
  std::uint64_t before_last_bytes() const noexcept { return rewritten_bytes() - last_bytes(); }
  // Reading can start here and there among the last steps.
  std::uint64_t bytes_per_keyframe() const noexcept { return most_bytes / 64; }
  // One chunk must not take much room: no event has more than some 60 bytes.
  std::uint32_t events_per_chunk() const noexcept {
    return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(most_bytes / 4096, 256, 65536));
  }
  // Of a step that is taken as a whole; of longer ones pieces are. A few times as many are in memory
  // at one time, with 104 bytes for each.
  std::size_t records_per_unit() const noexcept {
    return static_cast<std::size_t>(std::clamp<std::uint64_t>(most_bytes / 256, 4096, 65536));
  }
  std::uint64_t meanwhile_bytes() const noexcept { return most_bytes / 8; }
  // Bytes of the file read for each byte recorded: all of it twice while an eighth comes in.
  static constexpr std::uint64_t kPace = 8;
};

}  // namespace gpumemtrace::ageing
