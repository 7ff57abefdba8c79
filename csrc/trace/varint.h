// Variable-length integers: 7 bits a byte, lowest first, the top bit says that more follow.
//
//   0..127 -> 1 byte, 128..16383 -> 2, ... a 64-bit value takes at most 10.
//
// Signed differences are zigzag-folded first (0, -1, 1, -2 -> 0, 1, 2, 3), so that small steps in
// either direction stay short. Differences are taken modulo 2^64: every pair of values has one.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace gpumemtrace {

inline constexpr std::size_t kMaxVarintBytes = 10;

constexpr std::uint64_t zigzag(std::uint64_t difference) noexcept {
  return (difference << 1) ^ (0 - (difference >> 63));
}

constexpr std::uint64_t unzigzag(std::uint64_t folded) noexcept {
  return (folded >> 1) ^ (0 - (folded & 1));
}

// Bytes that put_varint will write.
constexpr std::size_t varint_size(std::uint64_t value) noexcept {
  return (static_cast<std::size_t>(std::bit_width(value | 1)) * 9 + 64) >> 6;
}

// Writes `value` at `out`, which must have room (varint_size); returns the byte after it.
inline std::uint8_t* put_varint(std::uint8_t* out, std::uint64_t value) noexcept {
  while (value >= 0x80) {
    *out++ = static_cast<std::uint8_t>(value | 0x80);
    value >>= 7;
  }
  *out++ = static_cast<std::uint8_t>(value);
  return out;
}

}  // namespace gpumemtrace
