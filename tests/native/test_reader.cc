#include <doctest/doctest.h>

#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "event_table.h"
#include "read_everything.h"
#include "read_left.h"
#include "sources.h"
#include "trace/format_error.h"
#include "trace/reader.h"
#include "trace_bytes.h"

namespace gpumemtrace {
namespace {

FormatErrorKind error_of(const Bytes& bytes) {
  try {
    open(bytes);
  } catch (const FormatError& error) {
    return error.kind();
  }
  FAIL("no error");
  return {};
}

ChunkHeader header_at(const Bytes& bytes, std::size_t offset) {
  ChunkHeader header;
  std::memcpy(&header, bytes.data() + offset, sizeof header);
  return header;
}

template <class Change>
Bytes with_header(Bytes bytes, std::size_t offset, Change change) {
  ChunkHeader header = header_at(bytes, offset);
  change(header);
  std::memcpy(bytes.data() + offset, &header, sizeof header);
  repair_checksums(bytes);
  return bytes;
}

}  // namespace

TEST_CASE("a closed file opens by its index, a growing one by walking, with the same result") {
  const auto events = training_events(25);
  const auto closed = open(small_trace(events, true));
  const auto growing = open(small_trace(events, false));
  CHECK(closed->problems().empty());
  CHECK(*closed->footer() == "{\"reason\": \"end\"}");
  CHECK(kinds_of(*growing) == std::vector{ProblemKind::kNotClosed});
  CHECK_FALSE(growing->footer());
  for (Reader* reader : {closed.get(), growing.get()}) {
    CHECK(reader->metadata() == std::vector<std::string>{"{\"pid\": 1}"});
    CHECK(reader->names() == std::vector<std::string>{"{\"phases\": []}"});
    REQUIRE(reader->chunks().size() == 3);
    CHECK(reader->chunks()[2].first_sequence == 20);
    CHECK(reader->chunks()[2].count == 5);
    CHECK(reader->chunks()[1].first_time_ns == static_cast<std::int64_t>(events[10].time));
    CHECK(reader->chunks()[1].last_time_ns == static_cast<std::int64_t>(events[19].time));
    check_nothing_wrong(*reader, events);
    CHECK(read_all(*reader).size() == 25);
  }
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(std::memcmp(&closed->chunks()[i], &growing->chunks()[i], sizeof(ChunkInfo)) == 0);
  }
}

TEST_CASE("some chunks can be read alone") {
  const auto events = training_events(25);
  const auto reader = open(small_trace(events, true));
  EventTable table(15);
  CHECK(reader->count(1, 3) == 15);
  CHECK(reader->read(1, 3, table.columns()) == 15);
  CHECK(same(table[0], events[10]));
  CHECK(same(table[14], events[24]));
  CHECK_THROWS_AS(reader->count(2, 4), std::out_of_range);
  CHECK_THROWS_AS(reader->count(2, 1), std::out_of_range);
}

TEST_CASE("a file cut anywhere gives the events before the cut") {
  const auto events = random_events(25, 64, 1);
  const Bytes whole = small_trace(events, true);
  for (std::size_t size = 0; size < sizeof(Preamble); ++size) {
    CHECK_THROWS_AS(open(first_bytes(whole, size)), FormatError);
  }
  check_cuts(whole, events);
}

TEST_CASE("a flipped bit costs one chunk at most, and is always reported") {
  const auto events = random_events(25, 64, 2);
  check_flips(small_trace(events, true), events, 15);
}

TEST_CASE("a damaged chunk is reported once, however often it is read") {
  const auto events = training_events(25);
  Bytes bytes = small_trace(events, true);
  const std::size_t second = chunk_offsets(bytes)[2];
  bytes[second + sizeof(ChunkHeader)] ^= 1;
  const auto reader = open(bytes);
  CHECK(reader->problems().empty());  // payloads are not looked at before they are read
  CHECK(read_all(*reader).size() == 15);
  CHECK(read_all(*reader).size() == 15);
  REQUIRE(kinds_of(*reader) == std::vector{ProblemKind::kDamagedChunk});
  CHECK(reader->problems()[0].offset == second);
  CHECK(reader->problems()[0].first_missing_sequence == 10);
  CHECK(reader->problems()[0].missing_count == 10);
}

TEST_CASE("several threads may read at once, damage or not") {
  const auto events = training_events(2000);
  Bytes bytes = small_trace(events, true);
  bytes[chunk_offsets(bytes)[2] + sizeof(ChunkHeader)] ^= 1;
  const auto reader = open(bytes);
  std::vector<std::size_t> counts(4);
  std::vector<std::thread> threads;
  for (std::size_t& count : counts) {
    threads.emplace_back([&] { count = read_all(*reader).size(); });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(counts == std::vector<std::size_t>(4, 1990));
  CHECK(reader->problems().size() == 1);
}

TEST_CASE("whole chunks cut out of the middle are missed by their numbers") {
  const auto events = training_events(45);
  const Bytes whole = small_trace(events, false);
  const auto offsets = chunk_offsets(whole);
  const auto reader = open(without(whole, offsets[2], offsets[4]));
  REQUIRE(kinds_of(*reader) == std::vector{ProblemKind::kMissingChunks, ProblemKind::kNotClosed});
  CHECK(reader->problems()[0].first_missing_sequence == 10);
  CHECK(reader->problems()[0].missing_count == 20);
  check_nothing_wrong(*reader, events);
  CHECK(read_all(*reader).size() == 25);
}

TEST_CASE("bytes lost from the middle of a chunk cost that chunk only") {
  const auto events = training_events(45);
  const Bytes whole = small_trace(events, false);
  const auto offsets = chunk_offsets(whole);
  for (std::size_t at = offsets[2]; at < offsets[3]; ++at) {
    CAPTURE(at);
    const auto reader = open(without(whole, at, at + 1));
    check_nothing_wrong(*reader, events);
    CHECK(read_all(*reader).size() == 35);
  }
}

TEST_CASE("two files in one: only the first counts, whatever the numbers of the second") {
  const auto events = training_events(15);
  Bytes bytes = small_trace(events, false, 1);
  const Bytes other = small_trace(training_events(100), false, 2);
  bytes.insert(bytes.end(), other.begin(), other.end());
  const auto reader = open(bytes);
  CHECK(read_all(*reader).size() == 15);
  check_nothing_wrong(*reader, events);
  CHECK(reader->metadata().size() == 1);
}

TEST_CASE("a chunk that comes twice counts once") {
  const auto events = training_events(25);
  Bytes bytes = small_trace(events, false);
  const auto offsets = chunk_offsets(bytes);
  const Bytes again(bytes.begin() + static_cast<std::ptrdiff_t>(offsets[1]),
                    bytes.begin() + static_cast<std::ptrdiff_t>(offsets[2]));
  bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(offsets[2]), again.begin(), again.end());
  const auto reader = open(bytes);
  CHECK(kinds_of(*reader)[0] == ProblemKind::kForeignChunk);
  CHECK(read_all(*reader).size() == 25);
}

TEST_CASE("what is no trace, or of a newer major version, is refused by name") {
  CHECK(error_of({}) == FormatErrorKind::kNotATrace);
  CHECK(error_of(Bytes(1000, 0)) == FormatErrorKind::kNotATrace);
  CHECK(error_of({'P', 'K', 3, 4}) == FormatErrorKind::kNotATrace);
  Bytes bytes = small_trace(training_events(5), true);
  bytes[8] = 2;
  repair_checksums(bytes);
  try {
    open(bytes);
    FAIL("no error");
  } catch (const FormatError& error) {
    CHECK(error.kind() == FormatErrorKind::kNewerVersion);
    CHECK(std::string(error.what()) == "format version 2.2; this reader knows version 1");
  }
}

TEST_CASE("a newer minor version is read: unknown chunks and header extensions are passed over") {
  const auto events = training_events(25);
  const Bytes bytes = small_trace(events, false);
  const auto offsets = chunk_offsets(bytes);

  const auto minor = open(with_header(bytes, offsets[1], [](ChunkHeader& header) {
    header.version_minor = 9;
    header.flags |= 1U << 20;
  }));
  CHECK(read_all(*minor).size() == 25);

  const auto unknown =
      open(with_header(bytes, offsets[0], [](ChunkHeader& header) { header.type = 99; }));
  CHECK(kinds_of(*unknown) == std::vector{ProblemKind::kNotClosed, ProblemKind::kUnknownChunk});
  CHECK(read_all(*unknown).size() == 25);

  const auto codec =
      open(with_header(bytes, offsets[2], [](ChunkHeader& header) { header.codec = 3; }));
  CHECK(read_all(*codec).size() == 15);
  CHECK(kinds_of(*codec) == std::vector{ProblemKind::kNotClosed, ProblemKind::kUnknownCodec});
  check_nothing_wrong(*codec, events);

  Bytes extended = bytes;
  extended.insert(extended.begin() + static_cast<std::ptrdiff_t>(offsets[1] + sizeof(ChunkHeader)),
                  24, 0xAB);
  extended =
      with_header(extended, offsets[1], [](ChunkHeader& header) { header.header_bytes += 24; });
  const auto extension = open(extended);
  CHECK(kinds_of(*extension) == std::vector{ProblemKind::kNotClosed});
  CHECK(read_all(*extension).size() == 25);
}

TEST_CASE("no file makes the reader crash, checksums or no checksums") {
  std::mt19937_64 random(11);
  const Bytes whole = small_trace(training_events(60), true);
  for (int round = 0; round < 5000; ++round) {
    Bytes bytes = whole;
    for (std::uint64_t i = 1 + random() % 3; i != 0; --i) {
      const std::size_t at = random() % bytes.size();
      const std::size_t end = std::min(bytes.size(), at + random() % 20);
      switch (random() % 4) {
        case 0:
          bytes[at] = static_cast<std::uint8_t>(random());
          break;
        case 1:
          bytes[at] ^= static_cast<std::uint8_t>(1U << (random() % 8));
          break;
        case 2:
          bytes = without(std::move(bytes), at, end);
          break;
        default:
          std::fill(bytes.data() + at, bytes.data() + end, 0xFF);
      }
    }
    repair_checksums(bytes);
    read_everything(std::move(bytes));
  }
}

}  // namespace gpumemtrace
