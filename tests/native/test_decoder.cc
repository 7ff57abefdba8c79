// encoder and decoder, held against each other.
#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "event_table.h"
#include "trace/byte_reader.h"
#include "trace/decoder.h"
#include "trace/encoder.h"

namespace gpumemtrace {
namespace {

std::vector<std::uint8_t> encode(const std::vector<Event>& events, std::uint64_t resolution = 1) {
  std::vector<std::uint8_t> bytes;
  Encoder().encode(events.data(), events.size(), resolution, bytes);
  return bytes;
}

EventTable decode(const std::vector<std::uint8_t>& bytes, std::size_t count,
                  std::uint64_t resolution = 1) {
  EventTable table(count);
  Decoder().decode({bytes.data(), bytes.size(), 0}, count, resolution, table.columns());
  return table;
}

void check_round_trip(const std::vector<Event>& events) {
  const EventTable table = decode(encode(events), events.size());
  for (std::size_t i = 0; i < events.size(); ++i) {
    CAPTURE(i);
    REQUIRE(same(table[i], events[i]));
  }
}

}  // namespace

TEST_CASE("any events come back the same") {
  check_round_trip(training_events(1));
  check_round_trip(training_events(5000));
  for (const unsigned spread : {1U, 3U, 8U, 16U, 33U, 64U}) {
    check_round_trip(random_events(3000, spread, spread));
  }
}

TEST_CASE("time is rounded towards zero to whole units, at the extremes too") {
  std::vector<Event> events(6);
  const std::int64_t times[6] = {0, 99, 100, -99, INT64_MAX, INT64_MIN};
  for (std::size_t i = 0; i < 6; ++i) events[i].time = static_cast<std::uint64_t>(times[i]);
  const EventTable table = decode(encode(events, 100), 6, 100);
  for (std::size_t i = 0; i < 6; ++i) {
    CHECK(static_cast<std::int64_t>(table[i].time) == times[i] / 100 * 100);
  }
}

TEST_CASE("times that overflow, fields too narrow and bytes left over are refused") {
  std::vector<Event> events(2);
  events[1].time = std::uint64_t{1} << 60;
  const auto bytes = encode(events);
  CHECK_NOTHROW(decode(bytes, 2));
  CHECK_THROWS_AS(decode(bytes, 2, 1000), FormatError);
  CHECK_THROWS_AS(decode(bytes, 1), FormatError);
  CHECK_THROWS_AS(decode(bytes, 3), FormatError);
  auto longer = bytes;
  longer.push_back(0);
  CHECK_THROWS_AS(decode(longer, 2), FormatError);
  // The last column is the device: kDeltas of one value, 0x10000.
  auto wide = encode(std::vector<Event>(1));
  wide.back() = 0x80;
  wide.insert(wide.end(), {0x80, 0x08});
  CHECK_THROWS_AS(decode(wide, 1), FormatError);
}

// Checksums stop chance damage before it gets here; this is for files made to hurt.
TEST_CASE("no payload makes the decoder read or write out of bounds") {
  std::mt19937_64 random(7);
  const auto bytes = encode(training_events(300));
  for (int round = 0; round < 20000; ++round) {
    auto damaged = bytes;
    for (std::uint64_t i = random() % 4; i != ~std::uint64_t{0}; --i) {
      damaged[random() % damaged.size()] = static_cast<std::uint8_t>(random());
    }
    if (random() % 4 == 0) damaged.resize(random() % damaged.size());
    try {
      decode(damaged, 1 + random() % 400, 1 + random() % 1000);
    } catch (const FormatError&) {
    }
  }
}

}  // namespace gpumemtrace
