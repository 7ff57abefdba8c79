#include <doctest/doctest.h>

#include <cstdint>

#include "compute/large_segments.h"

namespace gpumemtrace::compute {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

TEST_CASE("a rest of up to 1 MiB stays in the block") {
  LargeSegments segments;
  segments.add(0, 20 * kMiB);
  CHECK(segments.take(0, 19 * kMiB) == 20 * kMiB);
  segments.give_back(0);
  CHECK(segments.take(0, 19 * kMiB - 512) == 19 * kMiB - 512);
}

TEST_CASE("a free block reaches to the next one in use") {
  LargeSegments segments;
  segments.add(0, 20 * kMiB);
  CHECK(segments.take(0, 5 * kMiB) == 5 * kMiB);
  CHECK(segments.take(5 * kMiB, 5 * kMiB) == 5 * kMiB);
  segments.give_back(0);
  CHECK(segments.take(0, 4 * kMiB) == 5 * kMiB);
}

TEST_CASE("an address of no segment that is known takes what was asked for") {
  LargeSegments segments;
  CHECK(segments.take(0, 3 * kMiB) == 3 * kMiB);
  segments.add(100 * kMiB, 20 * kMiB);
  CHECK(segments.take(120 * kMiB, 3 * kMiB) == 3 * kMiB);
  CHECK(segments.take(99 * kMiB, 3 * kMiB) == 3 * kMiB);
  segments.give_back(5);
}

TEST_CASE("a new segment replaces those that it overlaps, but not the blocks in use there") {
  LargeSegments segments;
  segments.add(0, 20 * kMiB);
  segments.take(0, 15 * kMiB);
  segments.add(10 * kMiB, 20 * kMiB);
  CHECK(segments.take(10 * kMiB, 19 * kMiB) == 20 * kMiB);
  segments.add(0, 2 * kMiB);
  segments.forget_empty();
  segments.give_back(0);
  CHECK(segments.take(0, kMiB + 512) == 2 * kMiB);
  segments.give_back(0);
  segments.forget_empty();
  CHECK(segments.take(0, kMiB + 512) == kMiB + 512);
}

TEST_CASE("a block that comes before its segment bounds the free blocks of it") {
  LargeSegments segments;
  CHECK(segments.take(8 * kMiB, 4 * kMiB) == 4 * kMiB);
  segments.add(0, 20 * kMiB);
  CHECK(segments.take(0, 7 * kMiB + 512) == 8 * kMiB);
  segments.give_back(8 * kMiB);
  CHECK(segments.take(8 * kMiB, 11 * kMiB) == 12 * kMiB);
  segments.clear();
  CHECK(segments.take(8 * kMiB, 11 * kMiB) == 11 * kMiB);
}

TEST_CASE("a block found where one was lately is searched for again once segments change") {
  LargeSegments segments;
  segments.add(0, 20 * kMiB);
  segments.take(2 * kMiB, 17 * kMiB + 512);
  segments.give_back(2 * kMiB);
  segments.add(0, 40 * kMiB);
  CHECK(segments.take(2 * kMiB, 17 * kMiB + 512) == 17 * kMiB + 512);
  segments.give_back(2 * kMiB);
  segments.forget_empty();
  CHECK(segments.take(2 * kMiB, 17 * kMiB + 512) == 17 * kMiB + 512);
}

TEST_CASE("sizes from a broken file do no harm") {
  LargeSegments segments;
  for (const std::uint64_t base : {std::uint64_t{0}, ~std::uint64_t{0}, std::uint64_t{1} << 63}) {
    for (const std::int64_t size : {INT64_MIN, std::int64_t{-1}, std::int64_t{0}, INT64_MAX}) {
      segments.add(base, size);
      segments.take(base, 2 * kMiB);
      segments.take(base, INT64_MAX);
      segments.give_back(base);
    }
  }
  segments.forget_empty();
}

}  // namespace gpumemtrace::compute
