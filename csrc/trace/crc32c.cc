#include "trace/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace gpumemtrace {
namespace {

// kTables[k][b]: what the byte b does to the checksum when k more bytes follow it in the same step.
using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) {
      value = (value >> 1) ^ ((value & 1U) != 0 ? 0x82F63B78U : 0U);
    }
    tables[0][byte] = value;
  }
  for (std::size_t k = 1; k < 8; ++k) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t shorter = tables[k - 1][byte];
      tables[k][byte] = tables[0][shorter & 0xFFU] ^ (shorter >> 8);
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

std::uint64_t load_8(const unsigned char* bytes) noexcept {
  std::uint64_t word;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

}  // namespace

std::uint32_t crc32c_by_table(const void* data, std::size_t size_bytes,
                              std::uint32_t crc) noexcept {
  const auto* bytes = static_cast<const unsigned char*>(data);
  crc = ~crc;
  for (; size_bytes >= 8; size_bytes -= 8, bytes += 8) {
    const std::uint64_t word = load_8(bytes) ^ crc;
    crc = 0;
    for (unsigned k = 0; k < 8; ++k) crc ^= kTables[7 - k][(word >> (8 * k)) & 0xFFU];
  }
  for (; size_bytes != 0; --size_bytes, ++bytes) {
    crc = kTables[0][(crc ^ *bytes) & 0xFFU] ^ (crc >> 8);
  }
  return ~crc;
}

#if defined(__x86_64__)

bool has_crc32c_instruction() noexcept { return __builtin_cpu_supports("sse4.2") != 0; }

__attribute__((target("sse4.2"))) std::uint32_t crc32c_by_instruction(const void* data,
                                                                      std::size_t size_bytes,
                                                                      std::uint32_t crc) noexcept {
  const auto* bytes = static_cast<const unsigned char*>(data);
  std::uint64_t wide = ~crc;
  for (; size_bytes >= 8; size_bytes -= 8, bytes += 8) wide = _mm_crc32_u64(wide, load_8(bytes));
  auto narrow = static_cast<std::uint32_t>(wide);
  for (; size_bytes != 0; --size_bytes, ++bytes) narrow = _mm_crc32_u8(narrow, *bytes);
  return ~narrow;
}

#else

bool has_crc32c_instruction() noexcept { return false; }

std::uint32_t crc32c_by_instruction(const void* data, std::size_t size_bytes,
                                    std::uint32_t crc) noexcept {
  return crc32c_by_table(data, size_bytes, crc);
}

#endif

std::uint32_t crc32c(const void* data, std::size_t size_bytes, std::uint32_t crc) noexcept {
  static const auto compute = has_crc32c_instruction() ? crc32c_by_instruction : crc32c_by_table;
  return compute(data, size_bytes, crc);
}

}  // namespace gpumemtrace
