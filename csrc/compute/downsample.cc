#include "compute/downsample.h"

#include <algorithm>

namespace gpumemtrace::compute {
namespace {

// end - start, which may be more than INT64_MAX in a broken file.
double span(std::int64_t start, std::int64_t end) noexcept {
  return static_cast<double>(static_cast<std::uint64_t>(end) - static_cast<std::uint64_t>(start));
}

}  // namespace

Downsampler::Downsampler(std::int64_t start, std::int64_t end, std::size_t columns,
                         std::int64_t initial)
    : start_(start), columns_(columns) {
  columns_per_ns_ = end > start ? static_cast<double>(columns) / span(start, end) : 0.0;
  columns_[0] = {initial, initial, initial, initial};
}

void Downsampler::feed(std::size_t count, const std::int64_t* time, const std::int64_t* value,
                       const std::int16_t* device, std::int16_t wanted) {
  for (std::size_t i = 0; i < count; ++i) {
    if (device[i] != wanted) continue;
    const std::size_t column = column_at(time[i]);
    if (column > current_) advance(column);
    Column& c = columns_[current_];
    c.min = std::min(c.min, value[i]);
    c.max = std::max(c.max, value[i]);
    c.last = value[i];
  }
}

const std::vector<Downsampler::Column>& Downsampler::finish() {
  advance(columns_.size() - 1);
  return columns_;
}

std::size_t Downsampler::column_at(std::int64_t time) const noexcept {
  if (time <= start_) return 0;
  const double column = span(start_, time) * columns_per_ns_;
  const std::size_t last = columns_.size() - 1;
  return column >= static_cast<double>(last) ? last : static_cast<std::size_t>(column);
}

// Fills the columns up to and including `column` with the value carried in.
void Downsampler::advance(std::size_t column) noexcept {
  const std::int64_t carried = columns_[current_].last;
  while (current_ < column) columns_[++current_] = {carried, carried, carried, carried};
}

}  // namespace gpumemtrace::compute
