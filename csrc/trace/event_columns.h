// Events as columns: one array per field.
#pragma once

#include <algorithm>
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

// Copies `count` elements of every array, as memmove does.
inline void copy_columns(const EventColumns& from, const EventColumns& to,
                         std::size_t count) noexcept {
  std::copy_n(from.time_ns, count, to.time_ns);
  std::copy_n(from.kind, count, to.kind);
  std::copy_n(from.address, count, to.address);
  std::copy_n(from.size_bytes, count, to.size_bytes);
  std::copy_n(from.stream, count, to.stream);
  std::copy_n(from.extra, count, to.extra);
  std::copy_n(from.thread, count, to.thread);
  std::copy_n(from.site, count, to.site);
  std::copy_n(from.flags, count, to.flags);
  std::copy_n(from.device, count, to.device);
}

}  // namespace gpumemtrace
