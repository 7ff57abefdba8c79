// column_encoder and column_decoder, held against each other.
#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "trace/byte_reader.h"
#include "trace/column_decoder.h"
#include "trace/column_encoder.h"

namespace gpumemtrace {
namespace {

using Values = std::vector<std::uint64_t>;

std::vector<std::uint8_t> encode(const Values& values) {
  std::vector<std::uint8_t> bytes;
  ColumnEncoder().encode(values.data(), values.size(), bytes);
  return bytes;
}

Values decode(const std::vector<std::uint8_t>& bytes, std::size_t count) {
  Values values(count);
  ByteReader in(bytes.data(), bytes.size(), 0);
  ColumnDecoder().decode(in, count, values.data());
  if (in.remaining() != 0) in.fail("column", "goes on");
  return values;
}

ColumnEncoding encoding_of(const Values& values) {
  const auto bytes = encode(values);
  CHECK(decode(bytes, values.size()) == values);
  return static_cast<ColumnEncoding>(bytes[0]);
}

std::vector<std::uint8_t> bytes_of(ColumnEncoding encoding, std::vector<std::uint8_t> rest) {
  rest.insert(rest.begin(), static_cast<std::uint8_t>(encoding));
  return rest;
}

}  // namespace

TEST_CASE("each shape of column gets the encoding that suits it") {
  Values constant(1000, 7);
  CHECK(encoding_of(constant) == ColumnEncoding::kRuns);
  CHECK(encode(constant).size() == 4);

  Values counting(1000);
  for (std::size_t i = 0; i < 1000; ++i) counting[i] = 1'000'000 + 3 * i;
  CHECK(encoding_of(counting) == ColumnEncoding::kDeltas);

  Values few(1000);
  for (std::size_t i = 0; i < 1000; ++i) few[i] = (i * i % 7) << 40;
  CHECK(encoding_of(few) == ColumnEncoding::kDictionary);

  CHECK(encoding_of({0}) == ColumnEncoding::kDeltas);  // 2 bytes
}

TEST_CASE("extremes survive") {
  const std::uint64_t top = ~std::uint64_t{0};
  CHECK(encoding_of({0, top, 0, top >> 1, (top >> 1) + 1, top, 1}) == ColumnEncoding::kDeltas);
}

TEST_CASE("dictionaries of every size up to the limit, and one more") {
  for (const std::size_t size : {1, 2, 3, 255, 256, 257, 4095, 4096, 4097}) {
    std::mt19937_64 random(size);
    Values entries(size);
    for (auto& entry : entries) entry = random();
    Values values;
    for (std::size_t i = 0; i < 3 * size; ++i) values.push_back(entries[i * 2654435761U % size]);
    CAPTURE(size);
    CHECK(decode(encode(values), values.size()) == values);
  }
}

TEST_CASE("an encoder carries nothing from one column to the next") {
  ColumnEncoder encoder;
  std::mt19937_64 random(3);
  for (int round = 0; round < 200; ++round) {
    Values values(1 + random() % 300);
    const std::uint64_t distinct = 1 + random() % 20;
    for (auto& value : values) value = (random() % distinct) << (round % 60);
    std::vector<std::uint8_t> bytes;
    encoder.encode(values.data(), values.size(), bytes);
    CHECK(bytes == encode(values));
    CHECK(decode(bytes, values.size()) == values);
  }
}

TEST_CASE("columns that no encoder writes are refused") {
  CHECK_THROWS_AS(decode({}, 1), FormatError);
  CHECK_THROWS_AS(decode({9, 0, 0}, 1), FormatError);  // no such encoding
  const auto runs = [](std::vector<std::uint8_t> rest) {
    return bytes_of(ColumnEncoding::kRuns, std::move(rest));
  };
  CHECK(decode(runs({4, 2}), 3) == Values{2, 2, 2});
  CHECK_THROWS_AS(decode(runs({4, 3}), 3), FormatError);  // a run past the end
  CHECK_THROWS_AS(decode(runs({4, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1}), 3),
                  FormatError);
  const auto dictionary = [](std::vector<std::uint8_t> rest) {
    return bytes_of(ColumnEncoding::kDictionary, std::move(rest));
  };
  CHECK(decode(dictionary({3, 2, 2, 2, 0b100100}), 3) == Values{1, 2, 3});
  CHECK_THROWS_AS(decode(dictionary({3, 2, 2, 2, 0b110100}), 3), FormatError);  // index 3 of 3
  CHECK_THROWS_AS(decode(dictionary({3, 2, 2, 2}), 3), FormatError);            // no indices
  CHECK_THROWS_AS(decode(dictionary({0}), 3), FormatError);
  CHECK_THROWS_AS(decode(dictionary({0x81, 0x20}), 3), FormatError);  // 4097 entries
}

}  // namespace gpumemtrace
