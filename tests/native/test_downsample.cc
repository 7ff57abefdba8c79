#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "compute/downsample.h"

namespace gpumemtrace::compute {
namespace {

std::vector<std::int64_t> row(const Downsampler::Column& c) {
  return {c.first, c.min, c.max, c.last};
}

void feed(Downsampler& sampler, const std::vector<std::int64_t>& times,
          const std::vector<std::int64_t>& values) {
  const std::vector<std::int16_t> devices(times.size(), 0);
  sampler.feed(times.size(), times.data(), values.data(), devices.data(), 0);
}

}  // namespace

TEST_CASE("each column begins with the value carried in from the left") {
  Downsampler sampler(0, 100, 4, 5);
  feed(sampler, {10, 30, 31, 90}, {7, 1, 9, 2});
  const auto columns = sampler.finish();
  CHECK(row(columns[0]) == std::vector<std::int64_t>{5, 5, 7, 7});
  CHECK(row(columns[1]) == std::vector<std::int64_t>{7, 1, 9, 9});
  CHECK(row(columns[2]) == std::vector<std::int64_t>{9, 9, 9, 9});
  CHECK(row(columns[3]) == std::vector<std::int64_t>{9, 2, 9, 2});
}

TEST_CASE("times outside, times that step back and a span of nothing lose no value") {
  Downsampler sampler(50, 100, 2, 0);
  feed(sampler, {1, 200, 60}, {3, 8, 4});
  const auto columns = sampler.finish();
  CHECK(row(columns[0]) == std::vector<std::int64_t>{0, 0, 3, 3});
  CHECK(row(columns[1]) == std::vector<std::int64_t>{3, 3, 8, 4});

  Downsampler point(7, 7, 3, 0);
  feed(point, {7}, {1});
  CHECK(row(point.finish()[0]) == std::vector<std::int64_t>{0, 0, 1, 1});
}

TEST_CASE("the longest span does not overflow") {
  Downsampler sampler(INT64_MIN, INT64_MAX, 10, 0);
  feed(sampler, {INT64_MIN, 0, INT64_MAX}, {INT64_MAX, INT64_MIN, 1});
  CHECK(sampler.finish()[9].last == 1);

  Downsampler narrow(0, 1, 1'000'000, 0);
  feed(narrow, {INT64_MAX}, {3});
  CHECK(narrow.finish().back().max == 3);
}

}  // namespace gpumemtrace::compute
