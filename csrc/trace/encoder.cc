#include "trace/encoder.h"

#include <algorithm>

#include "trace/time_units.h"

namespace gpumemtrace {

void Encoder::encode(const Event* events, std::size_t count, std::uint64_t time_resolution_ns,
                     std::vector<std::uint8_t>& out) {
  kinds_.resize(count);
  values_.resize(std::max(values_.size(), count));
  for (std::size_t i = 0; i < count; ++i) {
    kinds_[i] = static_cast<std::uint16_t>(events[i].kind);
    values_[i] = kinds_[i];
  }
  column_.encode(values_.data(), count, out);

  for (std::size_t i = 0; i < count; ++i) {
    const auto time_ns = static_cast<std::int64_t>(events[i].time);
    values_[i] = static_cast<std::uint64_t>(quantise(time_ns, time_resolution_ns));
  }
  column_.encode(values_.data(), count, out);

  for (const KindGroups::Group& group : groups_.split(kinds_.data(), count)) {
    gather(events, group);
    const std::uint64_t* column = values_.data();
    for (std::size_t i = 0; i < kGroupedColumns; ++i, column += group.size) {
      column_.encode(column, group.size, out);
    }
  }
}

// In one pass: an event is a cache line, and eight passes would fetch each eight times.
void Encoder::gather(const Event* events, const KindGroups::Group& group) {
  values_.resize(std::max(values_.size(), kGroupedColumns * group.size));
  std::uint64_t* const values = values_.data();
  const std::size_t size = group.size;
  for (std::size_t i = 0; i < size; ++i) {
    const Event& event = events[group.positions[i]];
    values[i] = event.address;
    values[size + i] = event.size;
    values[2 * size + i] = event.stream;
    values[3 * size + i] = event.extra;
    values[4 * size + i] = event.thread;
    values[5 * size + i] = event.site;
    values[6 * size + i] = event.flags;
    values[7 * size + i] = static_cast<std::uint16_t>(event.device);
  }
}

}  // namespace gpumemtrace
