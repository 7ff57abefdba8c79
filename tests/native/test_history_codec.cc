// history_encoder and history_decoder, held against each other.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "event_table.h"
#include "trace/byte_reader.h"
#include "trace/format_error.h"
#include "trace/history_decoder.h"
#include "trace/history_encoder.h"

namespace gpumemtrace {
namespace {

using Bytes = std::vector<std::uint8_t>;

// Steps of a loop whose blocks have other addresses every second step, or every time, and then
// other sizes, too. Now and then there is a sample, or a step with one event more or fewer.
std::vector<Event> looping_events(std::size_t steps, bool variable, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Event> events;
  std::uint64_t time = 0;
  std::uint64_t allocated = 0;
  const auto add = [&](Kind kind, std::uint64_t address, std::uint64_t size) {
    time += 900 + random() % 200;
    Event event{};
    event.time = time;
    event.kind = kind;
    event.address = address;
    event.size = kind == Kind::kFree ? 0 : size;
    event.thread = 1;
    if (kind == Kind::kAlloc) allocated += (size + 511) / 512 * 512;
    if (kind == Kind::kFree) allocated -= (size + 511) / 512 * 512;
    if (kind == Kind::kAlloc && size > 1 << 20) event.extra = allocated;
    events.push_back(event);
  };
  for (std::size_t step = 0; step < steps; ++step) {
    const std::uint64_t length = variable ? 100 + random() % 100 : 128;
    const std::uint64_t blocks = 40 + (random() % 10 == 0 ? 1 : 0);
    const std::uint64_t base = 0x7F0000000000 + (variable ? random() % 64 : step % 2) * (1 << 30);
    const auto size_of = [&](std::uint64_t block) { return block % 3 == 0 ? 512 : length << 14; };
    add(Kind::kPhase, 0, 2);
    for (std::uint64_t b = 0; b < blocks; ++b) add(Kind::kAlloc, base + (b << 22), size_of(b));
    if (random() % 5 == 0) add(Kind::kDeviceUsed, allocated, random() % (1 << 30));
    add(Kind::kPhase, 0, 3);
    for (std::uint64_t b = blocks; b-- != 0;) add(Kind::kFree, base + (b << 22), size_of(b));
    add(Kind::kStep, 0, step + 1);
  }
  return events;
}

// One chunk after the other, of sizes up to `largest`, each a payload of its own.
struct Chain {
  std::vector<Bytes> payloads;
  std::vector<std::size_t> counts;
};

Chain encode(const std::vector<Event>& events, std::size_t largest, std::uint64_t resolution = 1) {
  std::mt19937_64 random(largest);
  HistoryEncoder encoder;
  Chain chain;
  for (std::size_t done = 0; done < events.size(); done += chain.counts.back()) {
    chain.counts.push_back(std::min<std::size_t>(events.size() - done, 1 + random() % largest));
    chain.payloads.emplace_back();
    encoder.encode(events.data() + done, chain.counts.back(), resolution, chain.payloads.back());
  }
  return chain;
}

void check_round_trip(const std::vector<Event>& events, std::size_t largest) {
  const Chain chain = encode(events, largest);
  HistoryDecoder decoder;
  std::size_t done = 0;
  for (std::size_t i = 0; i < chain.payloads.size(); ++i) {
    EventTable table(chain.counts[i]);
    decoder.decode({chain.payloads[i].data(), chain.payloads[i].size(), 0}, chain.counts[i], 1,
                   table.columns());
    for (std::size_t j = 0; j < chain.counts[i]; ++j) {
      CAPTURE(done + j);
      REQUIRE(same(table[j], events[done + j]));
    }
    done += chain.counts[i];
  }
}

std::size_t bytes_of(const Chain& chain) {
  std::size_t bytes = 0;
  for (const Bytes& payload : chain.payloads) bytes += payload.size();
  return bytes;
}

}  // namespace

TEST_CASE("any chain of chunks comes back the same") {
  for (const std::size_t largest : {1, 7, 300, 100000}) {
    check_round_trip(training_events(5000), largest);
    check_round_trip(looping_events(100, false, largest), largest);
    check_round_trip(looping_events(100, true, largest), largest);
    for (const unsigned spread : {1U, 2U, 3U, 8U, 16U, 33U, 64U}) {
      check_round_trip(random_events(3000, spread, spread), largest);
    }
  }
}

TEST_CASE("a history that has gone round several times comes back the same") {
  check_round_trip(looping_events(4000, false, 1), 50000);
  check_round_trip(looping_events(2500, true, 2), 9000);
  check_round_trip(random_events(200000, 2, 3), 9000);
  // The source falls out of reach while nothing matches it.
  auto events = looping_events(10, false, 4);
  const auto others = random_events(70000, 64, 5);
  events.insert(events.end(), others.begin(), others.end());
  const auto again = looping_events(10, false, 4);
  events.insert(events.end(), again.begin(), again.end());
  check_round_trip(events, 5000);
}

TEST_CASE("a payload is the same however its events were handed over") {
  std::mt19937_64 random(11);
  for (const bool variable : {false, true}) {
    const auto events = looping_events(300, variable, 5);
    Bytes whole;
    HistoryEncoder().encode(events.data(), events.size(), 10, whole);
    HistoryEncoder encoder;
    encoder.begin(10);
    std::size_t taken = 0;
    for (std::size_t known = 0; known < events.size();) {
      known = std::min<std::size_t>(events.size(), known + 1 + random() % 300);
      taken += encoder.add(events.data() + taken, known - taken);
      CHECK(taken <= known);
    }
    CHECK(taken + 100 > events.size());
    Bytes pieces;
    encoder.finish(events.data() + taken, events.size() - taken, pieces);
    CHECK(pieces == whole);
  }
}

TEST_CASE("steps that repeat cost little, also when addresses and sizes don't") {
  const auto per_event = [](const std::vector<Event>& events) {
    return static_cast<double>(bytes_of(encode(events, 1000, 1000))) /
           static_cast<double>(events.size());
  };
  CHECK(per_event(looping_events(1000, false, 1)) < 0.6);
  CHECK(per_event(looping_events(1000, true, 1)) < 2.5);
}

TEST_CASE("after a reset nothing is known, in encoder and decoder") {
  const auto events = looping_events(3, false, 1);
  HistoryEncoder encoder;
  Bytes first;
  Bytes second;
  Bytes chained;
  encoder.encode(events.data(), events.size(), 1, first);
  encoder.encode(events.data(), events.size(), 1, chained);
  encoder.reset();
  encoder.encode(events.data(), events.size(), 1, second);
  CHECK(first == second);
  CHECK(chained.size() < first.size());
  HistoryDecoder decoder;
  EventTable table(events.size());
  const auto decode = [&](const Bytes& bytes) {
    decoder.decode({bytes.data(), bytes.size(), 0}, events.size(), 1, table.columns());
  };
  CHECK_THROWS_AS(decode(chained), FormatError);  // jumps to where nothing is yet
  decoder.reset();
  decode(first);
  decoder.reset();
  decode(second);
  CHECK(same(table[100], events[100]));
}

TEST_CASE("times are rounded as in codec 1, and those that overflow are refused") {
  std::vector<Event> events(6);
  const std::int64_t times[6] = {0, 99, 100, -99, INT64_MAX, INT64_MIN};
  for (std::size_t i = 0; i < 6; ++i) events[i].time = static_cast<std::uint64_t>(times[i]);
  const Bytes bytes = encode(events, 1'000'000, 100).payloads[0];
  const auto decode = [&](std::uint64_t resolution) {
    EventTable table(6);
    HistoryDecoder().decode({bytes.data(), bytes.size(), 0}, 6, resolution, table.columns());
    return table;
  };
  const EventTable table = decode(100);
  for (std::size_t i = 0; i < 6; ++i) {
    CHECK(static_cast<std::int64_t>(table[i].time) == times[i] / 100 * 100);
  }
  CHECK_THROWS_AS(decode(1000), FormatError);
}

// Checksums stop chance damage before it gets here; this is for files made to hurt.
TEST_CASE("no payload makes the decoder read or write out of bounds") {
  std::mt19937_64 random(7);
  const Chain chain = encode(looping_events(12, true, 1), 400);
  REQUIRE(chain.payloads.size() >= 3);
  HistoryDecoder decoder;
  int refused = 0;
  for (int round = 0; round < 20000; ++round) {
    const std::size_t i = random() % 3;
    if (random() % 8 == 0) decoder.reset();  // else whatever the last round left
    Bytes damaged = chain.payloads[i];
    for (std::uint64_t n = random() % 4; n != 0; --n) {
      damaged[random() % damaged.size()] = static_cast<std::uint8_t>(random());
    }
    if (random() % 4 == 0) damaged.resize(random() % damaged.size());
    const std::size_t count = random() % 2 == 0 ? chain.counts[i] : 1 + random() % 500;
    EventTable table(count);
    try {
      decoder.decode({damaged.data(), damaged.size(), 0}, count, 1 + random() % 1000,
                     table.columns());
    } catch (const FormatError&) {
      ++refused;
    }
  }
  CHECK(refused > 10000);
}

}  // namespace gpumemtrace
