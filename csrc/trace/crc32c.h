// CRC32C (Castagnoli), the checksum of every chunk.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpumemtrace {

// Continues from `crc` (0 to begin): the checksum of a whole is that of its parts in a row.
// Any thread; no state.
std::uint32_t crc32c(const void* data, std::size_t size_bytes, std::uint32_t crc = 0) noexcept;

// The two ways of computing it, for the tests that hold one against the other.
bool has_crc32c_instruction() noexcept;
std::uint32_t crc32c_by_instruction(const void* data, std::size_t size_bytes,
                                    std::uint32_t crc) noexcept;
std::uint32_t crc32c_by_table(const void* data, std::size_t size_bytes, std::uint32_t crc) noexcept;

}  // namespace gpumemtrace
