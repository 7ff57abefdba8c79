// Times in whole units of a trace's resolution.
#pragma once

#include <cstdint>

namespace gpumemtrace {

// Whole units towards zero: the absolute time is rounded, never the gap, so errors don't add up.
constexpr std::int64_t quantise(std::int64_t time_ns, std::uint64_t time_resolution_ns) noexcept {
  const auto resolution = static_cast<std::int64_t>(time_resolution_ns);
  return resolution <= 0 ? 0 : time_ns / resolution;  // coarser than 2^63 ns: all is time 0
}

// The same for many times, without a division for each.
class TimeUnits {
 public:
  explicit constexpr TimeUnits(std::uint64_t time_resolution_ns) noexcept
      : resolution_(time_resolution_ns), inverse_(UINT64_MAX / time_resolution_ns) {}

  // `time_ns` and the result are signed.
  constexpr std::uint64_t of(std::uint64_t time_ns) const noexcept {
    const bool negative = time_ns >> 63 != 0;
    const std::uint64_t size = negative ? 0 - time_ns : time_ns;
    // size <= 2^63 and inverse_ is less than 2 below 2^64 / resolution: at most one too small.
    std::uint64_t units = high_half(size, inverse_);
    if (size - units * resolution_ >= resolution_) ++units;
    return negative ? 0 - units : units;
  }

 private:
  static constexpr std::uint64_t high_half(std::uint64_t a, std::uint64_t b) noexcept {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>(static_cast<Wide>(a) * b >> 64);
  }

  std::uint64_t resolution_;
  std::uint64_t inverse_;
};

}  // namespace gpumemtrace
