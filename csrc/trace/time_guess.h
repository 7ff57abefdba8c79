// When an event of a step comes after the one before it, learned from the same place of earlier
// steps: codec 2 stores only by how much the guess was wrong.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "trace/bits.h"
#include "trace/varint.h"

namespace gpumemtrace {

// All sums modulo 2^64. Time is in units of the chunk's resolution.
struct TimeGuess {
  std::uint64_t gap;     // as signed
  std::uint32_t spread;  // 16 times the mean absolute error so far

  static constexpr std::uint32_t kMaxSpread = 1U << 31;

  // A gap seen once: no more is known of it.
  static constexpr TimeGuess first(std::uint64_t gap) noexcept {
    const std::uint64_t size = zigzag(gap) >> 1;
    return {gap, static_cast<std::uint32_t>(std::min<std::uint64_t>(size * 4, kMaxSpread))};
  }

  // Low bits of the error's Rice code (of its zigzag).
  constexpr unsigned rice_bits() const noexcept {
    const auto bits = static_cast<unsigned>(std::bit_width(spread * std::uint64_t{3} / 32));
    return std::min(bits, kMaxRiceBits);
  }

  // After an error (actual - guessed): half of it is taken over, of an outlier only four times the
  // spread; the spread moves by a quarter.
  constexpr TimeGuess after(std::uint64_t error) const noexcept {
    const std::uint64_t size = zigzag(error) >> 1;
    const std::uint64_t most = std::uint64_t{spread} / 4 + 1;
    const std::uint64_t kept = std::min(size, most);
    const std::uint64_t step = kept / 2;
    const std::uint64_t target = std::min<std::uint64_t>(16 * kept, kMaxSpread);
    return {gap + (error >> 63 != 0 ? 0 - step : step),
            static_cast<std::uint32_t>(spread - spread / 4 + target / 4)};
  }
};

}  // namespace gpumemtrace
