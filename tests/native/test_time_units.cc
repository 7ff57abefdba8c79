#include <doctest/doctest.h>

#include <cstdint>
#include <random>

#include "trace/time_units.h"

namespace gpumemtrace {

TEST_CASE("units without a division are those with one") {
  std::mt19937_64 random(3);
  for (int round = 0; round < 200000; ++round) {
    const std::uint64_t resolution = (random() >> (1 + random() % 63)) | 1;
    const TimeUnits units(resolution);
    const std::uint64_t near = resolution * (random() >> (random() % 64));
    for (const std::uint64_t time : {random() >> (random() % 64), near, near - 1, 0 - near,
                                     std::uint64_t{1} << 63, ~std::uint64_t{0}, std::uint64_t{0}}) {
      CAPTURE(resolution);
      CAPTURE(time);
      REQUIRE(static_cast<std::int64_t>(units.of(time)) ==
              quantise(static_cast<std::int64_t>(time), resolution));
    }
  }
}

}  // namespace gpumemtrace
