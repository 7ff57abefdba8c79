// Events to write, and decoded columns to hold against them.
#pragma once

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "trace/event.h"
#include "trace/event_columns.h"

namespace gpumemtrace {

// Columns of its own, and a way back to events.
class EventTable {
 public:
  explicit EventTable(std::size_t count)
      : time_ns_(count),
        kind_(count),
        address_(count),
        size_bytes_(count),
        stream_(count),
        extra_(count),
        thread_(count),
        site_(count),
        flags_(count),
        device_(count) {}

  EventColumns columns() {
    return {time_ns_.data(), kind_.data(),   address_.data(), size_bytes_.data(), stream_.data(),
            extra_.data(),   thread_.data(), site_.data(),    flags_.data(),      device_.data()};
  }

  Event operator[](std::size_t i) const {
    return {static_cast<std::uint64_t>(time_ns_[i]),
            address_[i],
            size_bytes_[i],
            stream_[i],
            extra_[i],
            thread_[i],
            site_[i],
            flags_[i],
            device_[i],
            static_cast<Kind>(kind_[i])};
  }

 private:
  std::vector<std::int64_t> time_ns_;
  std::vector<std::uint16_t> kind_;
  std::vector<std::uint64_t> address_, size_bytes_, stream_, extra_;
  std::vector<std::uint32_t> thread_, site_, flags_;
  std::vector<std::int16_t> device_;
};

inline bool same(const Event& a, const Event& b) noexcept {
  return std::memcmp(&a, &b, sizeof a) == 0;  // 56 bytes without padding
}

// A loop that allocates and frees, as training does.
inline std::vector<Event> training_events(std::size_t count) {
  std::vector<Event> events(count);
  for (std::size_t i = 0; i < count; ++i) {
    Event& event = events[i];
    event.time = 1000 * i + i % 7;
    event.kind = i % 2 == 0 ? Kind::kAlloc : Kind::kFree;
    event.address = 0x7F0000000000 + 512 * (i / 2 % 10);
    event.size = event.kind == Kind::kAlloc ? 512 * (i % 5 + 1) : 0;
    event.thread = i % 3 == 2 ? 2 : 1;
  }
  return events;
}

// Anything that fits the fields, kinds of no meaning included; `spread` = bits used of each.
inline std::vector<Event> random_events(std::size_t count, unsigned spread, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto next = [&] { return random() >> (64 - spread); };
  std::vector<Event> events(count);
  for (Event& event : events) {
    event = {next(),
             next(),
             next(),
             next(),
             next(),
             static_cast<std::uint32_t>(next()),
             static_cast<std::uint32_t>(next()),
             static_cast<std::uint32_t>(next()),
             static_cast<std::int16_t>(next()),
             static_cast<Kind>(next() & 0xFFFF)};
  }
  return events;
}

}  // namespace gpumemtrace
