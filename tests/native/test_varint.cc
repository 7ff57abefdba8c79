#include <doctest/doctest.h>

#include <cstdint>
#include <initializer_list>

#include "trace/varint.h"

namespace gpumemtrace {

TEST_CASE("a varint takes as many bytes as varint_size says, 7 bits each") {
  for (unsigned bits = 0; bits <= 64; ++bits) {
    const std::uint64_t largest = bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1;
    std::uint8_t bytes[kMaxVarintBytes];
    CAPTURE(bits);
    CHECK(static_cast<std::size_t>(put_varint(bytes, largest) - bytes) == varint_size(largest));
    CHECK(varint_size(largest) == (bits == 0 ? 1 : (bits + 6) / 7));
  }
}

TEST_CASE("zigzag keeps small differences of either sign small, and loses none") {
  CHECK(zigzag(0) == 0);
  CHECK(zigzag(~std::uint64_t{0}) == 1);
  CHECK(zigzag(1) == 2);
  for (const std::uint64_t value : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 63,
                                    (std::uint64_t{1} << 63) - 1, ~std::uint64_t{0}}) {
    CHECK(unzigzag(zigzag(value)) == value);
  }
}

}  // namespace gpumemtrace
