#include <doctest/doctest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "event_table.h"
#include "sinks.h"
#include "sources.h"
#include "trace/reader.h"
#include "trace/writer.h"

namespace gpumemtrace {
namespace {

std::vector<Event> some_events(std::size_t count) {
  std::vector<Event> events(count);
  for (std::size_t i = 0; i < count; ++i) {
    events[i].time = 1000 * i;
    events[i].address = 0x7F0000000000 + 512 * i;
    events[i].size = 512;
    events[i].kind = Kind::kAlloc;
  }
  return events;
}

}  // namespace

TEST_CASE("a chunk reaches the sink whole, in one write") {
  std::vector<std::uint8_t> bytes;
  auto owned = std::make_unique<MemorySink>(bytes);
  MemorySink& sink = *owned;
  Writer writer(std::move(owned), {.events_per_chunk = 10});
  CHECK(sink.writes == 1);  // the preamble
  const auto events = some_events(25);
  CHECK(writer.append(events.data(), events.size()));
  CHECK(sink.writes == 3);
  CHECK(writer.events_written() == 20);
  CHECK(writer.flush());
  CHECK(writer.flush());  // nothing to do
  CHECK(sink.writes == 4);
  CHECK(writer.events_written() == 25);
  CHECK(writer.bytes_written() == bytes.size());
  CHECK(writer.close("{}", 2));
  CHECK(sink.closed);
  CHECK(writer.bytes_written() == bytes.size());
  CHECK(std::memcmp(bytes.data() + bytes.size() - sizeof(Trailer), kEndMagic, 8) == 0);
}

TEST_CASE(
    "events made in the stage are written like any others, moved if a flush came in between") {
  const auto events = some_events(60);
  const auto written = [&](bool in_stage) {
    std::vector<std::uint8_t> bytes;
    Writer writer(std::make_unique<MemorySink>(bytes), {.events_per_chunk = 30, .trace_id = 7});
    std::size_t done = 0;
    for (const std::size_t count : {12U, 18U, 10U, 15U, 5U}) {
      const Event* next = events.data() + done;
      if (in_stage) {
        if (writer.room() == 0) REQUIRE(writer.flush());
        REQUIRE(writer.room() >= count);
        next = std::copy_n(next, count, writer.free_stage()) - count;
      }
      // Behind 10 staged events the 15 next ones lie over their new place.
      if (done == 40) REQUIRE(writer.write_names("{}", 2));
      REQUIRE(writer.append(next, count));
      done += count;
    }
    REQUIRE(writer.close("{}", 2));
    return bytes;
  };
  CHECK(written(true) == written(false));
}

TEST_CASE("a keyframe that is asked for comes with the next chunk to begin, once") {
  std::vector<std::uint8_t> bytes;
  Writer writer(std::make_unique<MemorySink>(bytes), {.events_per_chunk = 10});
  const auto events = some_events(70);
  std::size_t done = 0;
  const auto append = [&](std::size_t count) {
    REQUIRE(writer.append(events.data() + done, count));
    done += count;
  };
  append(5);
  writer.begin_keyframe();  // the first chunk is one anyway
  append(25);
  writer.begin_keyframe();  // the third one is full, and waits
  append(5);
  writer.begin_keyframe();  // while the one asked for is being filled
  append(25);
  REQUIRE(writer.close("{}", 2));
  Reader reader(std::make_unique<MemorySource>(bytes));
  std::vector<bool> keyframes;
  for (const ChunkInfo& chunk : reader.chunks()) {
    if (chunk.type == static_cast<std::uint16_t>(ChunkType::kEvents)) {
      keyframes.push_back((chunk.flags & kKeyframe) != 0);
    }
  }
  CHECK(keyframes == std::vector<bool>{true, false, false, true, false, false});
  EventTable table(done);
  REQUIRE(reader.read(0, reader.chunks().size(), table.columns()) == done);
  for (std::size_t i = 0; i < done; ++i) CHECK(table[i].address == events[i].address);
}

TEST_CASE("the first error is kept, and nothing is written after it") {
  Writer writer(std::make_unique<FailingSink>(400, ENOSPC), {.events_per_chunk = 10});
  const auto events = some_events(1000);
  CHECK_FALSE(writer.append(events.data(), events.size()));
  const std::uint64_t bytes = writer.bytes_written();
  CHECK(bytes <= 400);
  CHECK(writer.error_number() == ENOSPC);
  CHECK(std::string(writer.error()) == "can't write");
  CHECK_FALSE(writer.append(events.data(), 1));
  CHECK_FALSE(writer.flush());
  CHECK_FALSE(writer.write_metadata("{}", 2));
  CHECK_FALSE(writer.close("{}", 2));
  CHECK_FALSE(writer.close("{}", 2));
  CHECK(writer.bytes_written() == bytes);
  CHECK(writer.error_number() == ENOSPC);
}

TEST_CASE("close is idempotent; writing after it is an error, not a crash") {
  std::vector<std::uint8_t> bytes;
  Writer writer(std::make_unique<MemorySink>(bytes), {});
  CHECK(writer.close("{}", 2));
  CHECK(writer.close("{}", 2));
  const std::size_t size = bytes.size();
  const auto events = some_events(1);
  CHECK_FALSE(writer.append(events.data(), 1));
  CHECK(std::string(writer.error()) == "the trace is closed");
  CHECK(bytes.size() == size);
}

TEST_CASE("options out of range are refused") {
  std::vector<std::uint8_t> bytes;
  const auto make = [&](WriterOptions options) {
    Writer writer(std::make_unique<MemorySink>(bytes), options);
  };
  CHECK_THROWS_AS(make({.time_resolution_ns = 0}), std::invalid_argument);
  CHECK_THROWS_AS(make({.events_per_chunk = 0}), std::invalid_argument);
  CHECK_THROWS_AS(make({.events_per_chunk = (1U << 20) + 1}), std::invalid_argument);
  CHECK_THROWS_AS(make({.codec = Codec::kNone}), std::invalid_argument);
  CHECK_THROWS_AS(make({.codec = static_cast<Codec>(3)}), std::invalid_argument);
  CHECK_THROWS_AS(make({.events_per_keyframe = 0}), std::invalid_argument);
  CHECK(bytes.empty());
}

}  // namespace gpumemtrace
