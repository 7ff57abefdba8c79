// CRC32C (Castagnoli), the checksum of every chunk.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpumemtrace {

// Continues from `crc` (0 to begin). Any thread; no state.
std::uint32_t crc32c(const void* data, std::size_t size_bytes, std::uint32_t crc = 0) noexcept;

}  // namespace gpumemtrace
