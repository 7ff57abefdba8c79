// Files whose chunks build on each other: what damage costs there, and where reading can start.
#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "event_table.h"
#include "read_everything.h"
#include "read_left.h"
#include "trace_bytes.h"

namespace gpumemtrace {
namespace {

// Chunks of ten events; the first, third, fifth are keyframes.
Bytes chained_trace(const std::vector<Event>& events, bool closed) {
  return small_trace(events, closed, 77, Codec::kHistory);
}

// What can be read when the chunks `bad` can't: each takes those up to the next keyframe with it.
std::size_t left_without(const std::vector<bool>& bad, std::size_t events) {
  std::size_t left = 0;
  bool whole = true;
  for (std::size_t i = 0; i < bad.size(); ++i) {
    whole = !bad[i] && (whole || i % 2 == 0);
    if (whole) left += std::min<std::size_t>(10, events - 10 * i);
  }
  return left;
}

}  // namespace

TEST_CASE("every chunk of a chain can be read alone, in any order") {
  const auto events = training_events(95);
  for (const bool closed : {false, true}) {
    const auto reader = open(chained_trace(events, closed));
    REQUIRE(reader->chunks().size() == 10);
    std::mt19937_64 random(1);
    for (int round = 0; round < 300; ++round) {
      const std::size_t first = random() % 10;
      const std::size_t last = first + random() % (11 - first);
      EventTable table(reader->count(first, last));
      REQUIRE(reader->read(first, last, table.columns()) == reader->count(first, last));
      for (std::size_t i = 0; i < reader->count(first, last); ++i) {
        REQUIRE(same(table[i], events[10 * first + i]));
      }
    }
    CHECK(reader->problems().size() == (closed ? 0 : 1));
  }
}

TEST_CASE("a chain cut anywhere gives all chunks before the cut") {
  const auto events = random_events(35, 64, 1);
  check_cuts(chained_trace(events, true), events);
}

TEST_CASE("a flipped bit costs what follows up to the next keyframe, and is reported") {
  const auto events = training_events(55);
  check_flips(chained_trace(events, true), events, 35);
}

TEST_CASE("damaged chunks take the rest of their chain with them, and no more") {
  const auto events = training_events(75);
  const Bytes whole = chained_trace(events, true);
  const auto offsets = chunk_offsets(whole);
  for (unsigned set = 0; set < 1U << 8; ++set) {
    CAPTURE(set);
    std::vector<bool> bad(8);
    Bytes damaged = whole;
    for (std::size_t i = 0; i < 8; ++i) {
      bad[i] = (set >> i & 1U) != 0;
      if (bad[i]) damaged[offsets[i + 1] + sizeof(ChunkHeader) + 1] ^= 4;
    }
    const auto reader = open(damaged);
    check_nothing_wrong(*reader, events);
    CHECK(read_all(*reader).size() == left_without(bad, events.size()));
    const auto backwards = open(damaged);
    std::size_t left = 0;
    for (std::size_t i = 8; i-- != 0;) {
      EventTable table(10);
      left += backwards->read(i, i + 1, table.columns());
    }
    CHECK(left == left_without(bad, events.size()));
    CHECK(backwards->problems().size() == reader->problems().size());
  }
}

TEST_CASE("what is said of a chunk whose chain is broken") {
  const auto events = training_events(35);
  Bytes damaged = chained_trace(events, true);
  damaged[chunk_offsets(damaged)[1] + sizeof(ChunkHeader)] ^= 1;
  const auto reader = open(damaged);
  EventTable table(10);
  CHECK(reader->read(1, 2, table.columns()) == 0);
  CHECK(reader->read(1, 2, table.columns()) == 0);
  const auto problems = reader->problems();
  REQUIRE(problems.size() == 2);
  CHECK(problems[0].message == "chunk payload fails its checksum");
  CHECK(problems[1].message == "a chunk that this one builds on is damaged or missing");
  CHECK(problems[1].first_missing_sequence == 10);
  CHECK(problems[1].missing_count == 10);
}

TEST_CASE("chunks cut out of a chain are missed by their numbers, with what builds on them") {
  const auto events = training_events(75);
  const Bytes whole = chained_trace(events, false);
  const auto offsets = chunk_offsets(whole);
  for (std::size_t first = 0; first < 7; ++first) {
    for (std::size_t last = first + 1; last < 8; ++last) {
      CAPTURE(first);
      CAPTURE(last);
      const Bytes bytes = without(whole, offsets[first + 1], offsets[last + 1]);
      std::vector<bool> bad(8);
      std::fill(bad.begin() + static_cast<std::ptrdiff_t>(first),
                bad.begin() + static_cast<std::ptrdiff_t>(last), true);
      const auto reader = open(bytes);
      check_nothing_wrong(*reader, events);
      CHECK(read_all(*reader).size() == left_without(bad, events.size()));
    }
  }
}

TEST_CASE("several threads may read a chain at once") {
  const auto events = training_events(3000);
  const auto reader = open(chained_trace(events, true));
  std::vector<std::size_t> counts(4);
  std::vector<std::thread> threads;
  for (std::size_t& count : counts) {
    threads.emplace_back([&] {
      EventTable table(10);
      for (std::size_t i = 0; i < reader->chunks().size(); ++i) {
        const std::size_t got = reader->read(i, i + 1, table.columns());
        if (got == 10 && same(table[9], events[10 * i + 9])) count += got;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(counts == std::vector<std::size_t>(4, 3000));
  CHECK(reader->problems().empty());
}

TEST_CASE("no chain makes the reader crash when all checksums are right") {
  std::mt19937_64 random(11);
  const Bytes whole = chained_trace(training_events(60), true);
  for (int round = 0; round < 5000; ++round) {
    Bytes bytes = whole;
    for (std::uint64_t i = 1 + random() % 4; i != 0; --i) {
      bytes[random() % bytes.size()] = static_cast<std::uint8_t>(random());
    }
    repair_checksums(bytes);
    read_everything(std::move(bytes));
  }
}

}  // namespace gpumemtrace
