// Room for decoded events that nobody asked for.
#pragma once

#include <cstdint>
#include <vector>

#include "trace/event_columns.h"

namespace gpumemtrace {

// Keeps its memory. One thread at a time.
class EventBuffer {
 public:
  // Arrays of `count` elements, valid until the next call.
  EventColumns columns(std::uint64_t count) {
    const auto size = static_cast<std::size_t>(count);
    time_ns_.resize(size);
    wide_.resize(4 * size);
    narrow_.resize(3 * size);
    kind_.resize(size);
    device_.resize(size);
    return {time_ns_.data(),
            kind_.data(),
            wide_.data(),
            wide_.data() + size,
            wide_.data() + 2 * size,
            wide_.data() + 3 * size,
            narrow_.data(),
            narrow_.data() + size,
            narrow_.data() + 2 * size,
            device_.data()};
  }

 private:
  std::vector<std::int64_t> time_ns_;
  std::vector<std::uint64_t> wide_;
  std::vector<std::uint32_t> narrow_;
  std::vector<std::uint16_t> kind_;
  std::vector<std::int16_t> device_;
};

}  // namespace gpumemtrace
