#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "trace/byte_reader.h"

namespace gpumemtrace {

TEST_CASE("take hands out what is there, and no byte more") {
  const std::uint8_t bytes[4] = {1, 2, 3, 4};
  ByteReader in(bytes, 4, 100);
  CHECK(*in.take(3, "three") == 1);
  CHECK(in.offset() == 103);
  CHECK(in.remaining() == 1);
  CHECK_THROWS_AS(in.take(2, "two"), FormatError);
  CHECK_THROWS_AS(in.take(~std::uint64_t{0}, "all"), FormatError);
  CHECK_THROWS_AS(in.load<std::uint32_t>("word"), FormatError);
  CHECK(in.load<std::uint8_t>("byte") == 4);
  CHECK(in.remaining() == 0);
}

TEST_CASE("an error says where in the file and what was being read") {
  const std::uint8_t bytes[2] = {};
  ByteReader in(bytes, 2, 1000);
  in.take(1, "one");
  try {
    in.take(5, "five bytes");
    FAIL("no error");
  } catch (const FormatError& error) {
    CHECK(error.kind() == FormatErrorKind::kCorrupt);
    CHECK(error.offset() == 1001);
    CHECK(std::string(error.what()) == "five bytes ends too early");
  }
}

// Both branches of varint(): with 10 bytes to spare, and at the very end of the buffer.
TEST_CASE("varints of all lengths come back") {
  for (unsigned bits = 0; bits <= 64; ++bits) {
    const std::uint64_t largest = bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1;
    for (const std::size_t spare : {std::size_t{0}, kMaxVarintBytes}) {
      std::vector<std::uint8_t> bytes(varint_size(largest) + spare);
      put_varint(bytes.data(), largest);
      ByteReader in(bytes.data(), bytes.size(), 0);
      CHECK(in.varint("number") == largest);
      CHECK(in.remaining() == spare);
    }
  }
}

TEST_CASE("a varint that is cut, or of more than 64 bits, is an error") {
  for (std::size_t size = 0; size < kMaxVarintBytes; ++size) {
    const std::vector<std::uint8_t> cut(size, 0x80);
    ByteReader in(cut.data(), cut.size(), 0);
    CHECK_THROWS_AS(in.varint("number"), FormatError);
  }
  for (const std::size_t spare : {std::size_t{0}, kMaxVarintBytes}) {
    std::vector<std::uint8_t> bytes(kMaxVarintBytes + spare, 0xFF);
    bytes[9] = 0x02;  // the 65th bit
    ByteReader in(bytes.data(), bytes.size(), 0);
    CHECK_THROWS_AS(in.varint("number"), FormatError);
    bytes[9] = 0x81;  // an 11th byte
    ByteReader longer(bytes.data(), bytes.size(), 0);
    CHECK_THROWS_AS(longer.varint("number"), FormatError);
  }
}

}  // namespace gpumemtrace
