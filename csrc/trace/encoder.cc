#include "trace/encoder.h"

#include <type_traits>

namespace gpumemtrace {

void Encoder::encode(const Event* events, std::size_t count, std::uint64_t time_resolution_ns,
                     std::vector<std::uint8_t>& out) {
  kinds_.resize(count);
  values_.resize(count);
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
    const auto put = [&](auto field) {
      using Value = std::remove_cvref_t<decltype(events->*field)>;
      for (std::size_t i = 0; i < group.size; ++i) {
        values_[i] = static_cast<std::make_unsigned_t<Value>>(events[group.positions[i]].*field);
      }
      column_.encode(values_.data(), group.size, out);
    };
    put(&Event::address);
    put(&Event::size);
    put(&Event::stream);
    put(&Event::extra);
    put(&Event::thread);
    put(&Event::site);
    put(&Event::flags);
    put(&Event::device);
  }
}

}  // namespace gpumemtrace
