// Reading what is left of a trace in memory, and the contract of it.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "event_table.h"
#include "sources.h"
#include "trace/problem.h"
#include "trace/reader.h"
#include "trace_bytes.h"

namespace gpumemtrace {

inline std::unique_ptr<Reader> open(Bytes bytes) {
  return std::make_unique<Reader>(std::make_unique<MemorySource>(std::move(bytes)));
}

inline std::vector<Event> read_all(Reader& reader) {
  EventTable table(reader.count(0, reader.chunks().size()));
  const std::size_t done = reader.read(0, reader.chunks().size(), table.columns());
  std::vector<Event> events;
  for (std::size_t i = 0; i < done; ++i) events.push_back(table[i]);
  return events;
}

inline std::vector<ProblemKind> kinds_of(const Reader& reader) {
  std::vector<ProblemKind> kinds;
  for (const Problem& problem : reader.problems()) kinds.push_back(problem.kind);
  return kinds;
}

// The contract of reading whatever is left: what comes out are events of `all`, in order, without
// those reported missing; only where the file says nothing of its end may more be gone.
inline void check_nothing_wrong(Reader& reader, const std::vector<Event>& all) {
  const std::vector<Event> got = read_all(reader);
  std::vector<bool> missing(all.size());
  bool open_end = false;
  for (const Problem& problem : reader.problems()) {
    open_end |= problem.kind == ProblemKind::kNotClosed;
    const std::uint64_t first = problem.first_missing_sequence;
    for (std::uint64_t i = first; i < all.size() && i - first < problem.missing_count; ++i) {
      missing[i] = true;
    }
  }
  std::size_t next = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (missing[i]) continue;
    if (next == got.size()) {
      REQUIRE(open_end);
      return;
    }
    REQUIRE(same(got[next++], all[i]));
  }
  REQUIRE(next == got.size());
}

// Cut anywhere behind its preamble, a trace gives all chunks before the cut: nothing is given up
// that was whole.
inline void check_cuts(const Bytes& whole, const std::vector<Event>& events) {
  const auto undamaged = open(whole);
  for (std::size_t size = sizeof(Preamble); size < whole.size(); ++size) {
    CAPTURE(size);
    const auto reader = open(first_bytes(whole, size));
    REQUIRE_FALSE(reader->problems().empty());
    check_nothing_wrong(*reader, events);
    std::uint64_t expected = 0;
    for (const ChunkInfo& chunk : undamaged->chunks()) {
      if (chunk.end() <= size) expected += chunk.count;
    }
    CHECK(read_all(*reader).size() == expected);
  }
}

// Whatever bit is flipped, that is reported and `least` events are left.
inline void check_flips(const Bytes& whole, const std::vector<Event>& events, std::size_t least) {
  for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    CAPTURE(bit);
    Bytes damaged = whole;
    damaged[bit / 8] ^= static_cast<std::uint8_t>(1U << (bit % 8));
    const auto reader = open(damaged);
    check_nothing_wrong(*reader, events);
    REQUIRE_FALSE(reader->problems().empty());
    CHECK(read_all(*reader).size() >= least);
  }
}

}  // namespace gpumemtrace
