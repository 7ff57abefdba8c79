// Bytes as events that have to do with each other: few addresses, sizes and threads, some of them at
// the edge of what a field holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "trace/event.h"

namespace gpumemtrace {

// Eight bytes an event: kind, address, size, stream and extra, thread and flags, device, time (2).
inline std::vector<Event> events_of(const std::uint8_t* data, std::size_t size_bytes) {
  constexpr std::size_t kBytesPerEvent = 8;
  constexpr std::uint64_t kEdges[] = {0,          1,          511,
                                      512,        1 << 20,    (1 << 20) + 1,
                                      10 << 20,   2 << 20,    1 << 25,
                                      1ULL << 32, 1ULL << 40, 1ULL << 47,
                                      1ULL << 62, INT64_MAX,  INT64_MAX + 1ULL,
                                      ~0ULL};
  const auto number = [&](unsigned code) {
    return code < 128 ? kEdges[code % 16] + kEdges[code / 16] : (std::uint64_t{code} - 128) << 19;
  };
  std::vector<Event> events(size_bytes / kBytesPerEvent);
  std::uint64_t time = 0;
  for (Event& event : events) {
    event = {};
    event.kind = static_cast<Kind>(data[0] % 24);
    event.address = number(data[1]);
    event.size = number(data[2]);
    event.stream = number(data[3] & 0x8FU);
    event.extra = number((data[3] >> 4U & 7U) | (data[2] & 0x80U));
    event.thread = data[4] % 4U;
    event.flags = data[4] / 4U % 8U;
    event.site = data[4] / 32U;
    event.device =
        static_cast<std::int16_t>(data[5] < 250 ? data[5] % 4 - 1 : (data[5] - 253) * 9000);
    time += data[6] == 255 ? number(data[7]) : data[6] * 256ULL + data[7];
    event.time = time;
    data += kBytesPerEvent;
  }
  return events;
}

}  // namespace gpumemtrace
