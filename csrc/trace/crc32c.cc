#include "trace/crc32c.h"

#include <array>

namespace gpumemtrace {
namespace {

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) {
      value = (value >> 1) ^ ((value & 1U) != 0 ? 0x82F63B78U : 0U);
    }
    table[i] = value;
  }
  return table;
}

constexpr auto kTable = make_table();

}  // namespace

std::uint32_t crc32c(const void* data, std::size_t size_bytes, std::uint32_t crc) noexcept {
  const auto* bytes = static_cast<const unsigned char*>(data);
  crc = ~crc;
  for (std::size_t i = 0; i < size_bytes; ++i) {
    crc = kTable[(crc ^ bytes[i]) & 0xFFU] ^ (crc >> 8);
  }
  return ~crc;
}

}  // namespace gpumemtrace
