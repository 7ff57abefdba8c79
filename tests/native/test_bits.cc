#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "trace/bits.h"

namespace gpumemtrace {

TEST_CASE("the bits of a Rice code are where the layout says") {
  BitWriter writer;
  writer.put_rice(5, 1);   // quotient 2, low bit 1: 0 0 1 1
  writer.put_rice(0, 0);   // 1
  writer.put_rice(16, 0);  // too large a quotient: 16 zeros, 1, width - 1 = 4 in 6 bits, 10000
  std::vector<std::uint8_t> bytes;
  writer.finish(bytes);
  // From the lowest bit on: 00111000 00000000 00000100 10000001 -> 1100 1 0000000000000000 1 ...
  CHECK(bytes == std::vector<std::uint8_t>{0x1C, 0x00, 0x20, 0x01, 0x01});
}

TEST_CASE("any numbers come back, whatever the number of low bits") {
  std::mt19937_64 random(1);
  std::vector<std::uint64_t> numbers = {0, 1, 15, 16, ~std::uint64_t{0}, std::uint64_t{1} << 32};
  for (int i = 0; i < 5000; ++i) numbers.push_back(random() >> (random() % 64));
  BitWriter writer;
  for (int round = 0; round < 3; ++round) {
    writer.clear();
    std::vector<unsigned> low_bits;
    for (const std::uint64_t number : numbers) {
      low_bits.push_back(static_cast<unsigned>(random() % (kMaxRiceBits + 1)));
      writer.put_rice(number, low_bits.back());
    }
    std::vector<std::uint8_t> bytes;
    writer.finish(bytes);
    BitReader reader(bytes.data(), bytes.size());
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      CAPTURE(i);
      REQUIRE_FALSE(reader.is_past_end());
      REQUIRE(reader.rice(low_bits[i]) == numbers[i]);
    }
    CHECK(reader.is_at_end());
    reader.rice(32);
    CHECK(reader.is_past_end());
  }
}

TEST_CASE("a byte too many, or bits set behind the last code, are no end") {
  for (const std::vector<std::uint8_t>& bytes :
       {std::vector<std::uint8_t>{1, 0}, std::vector<std::uint8_t>{0x81}}) {
    BitReader reader(bytes.data(), bytes.size());
    CHECK(reader.rice(0) == 0);
    CHECK_FALSE(reader.is_at_end());
  }
}

}  // namespace gpumemtrace
