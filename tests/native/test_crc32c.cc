#include <doctest/doctest.h>

#include <cstring>
#include <random>
#include <vector>

#include "trace/crc32c.h"

namespace gpumemtrace {
namespace {

struct Vector {
  std::vector<std::uint8_t> bytes;
  std::uint32_t crc;
};

// RFC 3720, appendix B.4, and the check value of the CRC catalogue.
std::vector<Vector> published_vectors() {
  std::vector<std::uint8_t> up(32);
  std::vector<std::uint8_t> down(32);
  for (std::size_t i = 0; i < 32; ++i) {
    up[i] = static_cast<std::uint8_t>(i);
    down[i] = static_cast<std::uint8_t>(31 - i);
  }
  const char* digits = "123456789";
  return {{std::vector<std::uint8_t>(32, 0x00), 0x8A9136AA},
          {std::vector<std::uint8_t>(32, 0xFF), 0x62A8AB43},
          {up, 0x46DD794E},
          {down, 0x113FDB5C},
          {std::vector<std::uint8_t>(digits, digits + 9), 0xE3069283},
          {{}, 0}};
}

}  // namespace

TEST_CASE("published test vectors, by instruction and by table") {
  for (const Vector& vector : published_vectors()) {
    CHECK(crc32c(vector.bytes.data(), vector.bytes.size()) == vector.crc);
    CHECK(crc32c_by_table(vector.bytes.data(), vector.bytes.size(), 0) == vector.crc);
    if (has_crc32c_instruction()) {
      CHECK(crc32c_by_instruction(vector.bytes.data(), vector.bytes.size(), 0) == vector.crc);
    }
  }
}

TEST_CASE("both ways agree for every length and alignment, and parts make the whole") {
  std::mt19937_64 random(1);
  std::vector<std::uint8_t> bytes(200);
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
  for (std::size_t start = 0; start < 9; ++start) {
    for (std::size_t size = 0; size < 100; ++size) {
      const std::uint8_t* data = bytes.data() + start;
      const std::uint32_t whole = crc32c_by_table(data, size, 0);
      CHECK(crc32c(data, size) == whole);
      CHECK(crc32c(data + size / 3, size - size / 3, crc32c(data, size / 3)) == whole);
    }
  }
}

}  // namespace gpumemtrace
