// Events as columns: one array per field.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpumemtrace {

// Where decoded events go: arrays of the caller's, one element per event.
struct EventColumns {
  std::int64_t* time_ns;
  std::uint16_t* kind;
  std::uint64_t* address;
  std::uint64_t* size_bytes;
  std::uint64_t* stream;
  std::uint64_t* extra;
  std::uint32_t* thread;
  std::uint32_t* site;
  std::uint32_t* flags;
  std::int16_t* device;

  // The same arrays, `count` elements further on.
  EventColumns from(std::size_t count) const noexcept {
    return {time_ns + count, kind + count,   address + count, size_bytes + count, stream + count,
            extra + count,   thread + count, site + count,    flags + count,      device + count};
  }
};

}  // namespace gpumemtrace
