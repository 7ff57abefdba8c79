// A line at the width of a picture: first, min, max and last value per pixel column (M4).
//
// Draws the same pixels as every point would, so no peak is lost. Each column starts with the
// value carried in from the left, also where nothing happened in it.
// (M4: Jugel, Jerzak, Hackenbroich, Markl, "M4: A Visualization-Oriented Time Series Data
// Aggregation", VLDB 2014.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gpumemtrace::compute {

class Downsampler {
 public:
  struct Column {
    std::int64_t first;
    std::int64_t min;
    std::int64_t max;
    std::int64_t last;
  };

  // Columns of equal width over [start, end], `initial` carried in from before. Points outside
  // count for the column at that edge. `columns` >= 1, `end` >= `start`.
  Downsampler(std::int64_t start, std::int64_t end, std::size_t columns, std::int64_t initial);

  // Points in order. Time may step back a little (clocks of several threads): such a point counts
  // for the column of the one before it. Only points of `device` are taken.
  void feed(std::size_t count, const std::int64_t* time, const std::int64_t* value,
            const std::int16_t* device, std::int16_t wanted);

  // Carries the last value to the right edge; feed() nothing after it.
  const std::vector<Column>& finish();

 private:
  std::size_t column_at(std::int64_t time) const noexcept;
  void advance(std::size_t column) noexcept;

  std::int64_t start_;
  double columns_per_ns_;
  std::size_t current_ = 0;
  std::vector<Column> columns_;
};

}  // namespace gpumemtrace::compute
