// A file kept below a size: the shares of its room, what is chosen, what is left of the rest.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "ageing/ageing.h"
#include "ageing/shares.h"
#include "ageing/summary.h"
#include "ageing/survey.h"
#include "ageing/unit.h"
#include "long_run.h"
#include "read_back.h"
#include "trace/chunk_walk.h"
#include "trace/sink.h"

namespace gpumemtrace::ageing {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

// A unit that has its rows to itself.
struct OwnUnit : Unit {
  explicit OwnUnit(const Unit& unit)
      : Unit(unit), buffer(std::make_shared<RowBuffer>()), count(unit.rows.count) {
    buffer->append(unit.rows);
    rows = buffer->rows();
  }
  Kind last_kind() const { return rows.kind(count - 1); }
  Levels end() const { return rows.levels(count - 1); }

  std::shared_ptr<RowBuffer> buffer;
  std::size_t count;
};

std::vector<OwnUnit> units_of(const std::string& path, std::size_t most_records) {
  const FileSource source(path);
  UnitReader reader(most_records);
  std::vector<OwnUnit> units;
  Unit unit;
  for (const ChunkInfo& chunk : walk_chunks(source).chunks) {
    if (!chunk.is(ChunkType::kEvents)) continue;
    reader.feed(source, chunk);
    while (reader.take(unit)) units.emplace_back(unit);
  }
  if (reader.take_rest(unit)) units.emplace_back(unit);
  return units;
}

std::vector<OwnUnit> units_of(const std::vector<Event>& events,
                              std::uint32_t events_per_chunk = 1000,
                              std::size_t most_records = 10'000) {
  const TemporaryPath path;
  Writer writer(std::make_unique<FileSink>(path.name(), false),
                {.events_per_chunk = events_per_chunk});
  REQUIRE(writer.append(events.data(), events.size()));
  REQUIRE(writer.flush());
  return units_of(path.name(), most_records);
}

std::vector<Event> steps(LongRun& run, int count) {
  std::vector<Event> all;
  for (int i = 0; i < count; ++i) {
    const std::vector<Event> step = run.next();
    all.insert(all.end(), step.begin(), step.end());
  }
  return all;
}

Levels highest(const Rows& rows) {
  Levels levels;
  for (std::size_t i = 0; i < rows.count; ++i) levels.raise_to(rows.levels(i));
  return levels;
}

// One device, which takes `bytes` and gives them back but for `left`.
std::vector<Event> step_with(std::uint64_t bytes, std::uint64_t left, std::uint64_t number) {
  std::vector<Event> events(4);
  for (Event& event : events) event.time = number;
  events[0].kind = Kind::kAlloc;
  events[0].address = 4096;
  events[0].size = bytes;
  events[1].kind = Kind::kFree;
  events[1].address = 4096;
  events[2].kind = Kind::kAlloc;
  events[2].address = 8192 * (number + 1);
  events[2].size = left;
  events[3].kind = Kind::kStep;
  events[3].size = number + 1;
  return events;
}

}  // namespace

TEST_CASE("whatever the limit, the two files and what comes meanwhile fit in it") {
  for (std::uint64_t most = Shares::kLeastBytes; most < std::uint64_t{1} << 50;
       most = most * 3 / 2) {
    const Shares shares{most};
    CHECK(shares.start_bytes() + shares.rewritten_bytes() + 2 * shares.meanwhile_bytes() <= most);
    CHECK(shares.first_bytes() + shares.unusual_bytes() < shares.before_last_bytes());
    CHECK(shares.before_last_bytes() + shares.last_bytes() == shares.rewritten_bytes());
    CHECK(shares.rewritten_bytes() + shares.meanwhile_bytes() < shares.start_bytes());
    // A chunk is at most some 60 bytes an event: it must not be what breaks the limit.
    CHECK(shares.events_per_chunk() * 60 < most / 32);
  }
  CHECK_THROWS_AS(Ageing::prepare({}, Shares::kLeastBytes - 1), std::invalid_argument);
}

TEST_CASE("units end with a step's mark, or where they would become too long, however chunks lie") {
  LongRun run(20);
  const std::vector<Event> events = steps(run, 30);
  const std::vector<OwnUnit> units = units_of(events);
  REQUIRE(units.size() == 30);
  CHECK(units[0].has_baseline);
  CHECK_FALSE(units[1].has_baseline);
  std::size_t records = 0;
  for (std::size_t i = 0; i < units.size(); ++i) {
    CHECK(units[i].number == i);
    CHECK(units[i].is_whole);
    CHECK(units[i].last_kind() == Kind::kStep);
    records += units[i].count;
  }
  CHECK(records == events.size());
  const std::vector<OwnUnit> others = units_of(events, 7);
  REQUIRE(others.size() == units.size());
  for (std::size_t i = 0; i < units.size(); ++i) {
    REQUIRE(others[i].count == units[i].count);
    for (std::size_t k = 0; k < units[i].count; ++k) {
      CHECK(others[i].rows.levels(k) == units[i].rows.levels(k));
    }
  }
  for (const OwnUnit& unit : units_of(events, 1000, 16)) CHECK(unit.count <= 16);
}

TEST_CASE("a summary has every block that lives on, the peak, the end, and what was left out") {
  LongRun run(50);
  const std::vector<OwnUnit> units = units_of(steps(run, 6));
  Summary summary;
  std::vector<Event> told;
  for (const OwnUnit& unit : units) {
    if (unit.number % 2 == 0) {
      summary.keep(unit.rows, told);
    } else {
      summary.age(unit.rows, false, told);
    }
  }
  const std::vector<OwnUnit> after = units_of(told);
  REQUIRE(after.size() == units.size());
  for (std::size_t i = 0; i < units.size(); ++i) {
    CAPTURE(i);
    CHECK(highest(after[i].rows) == highest(units[i].rows));
    CHECK(after[i].end() == units[i].end());
    CHECK(after[i].has_aged == (i % 2 == 1));
    if (i % 2 == 0) {
      CHECK(after[i].count == units[i].count);
      continue;
    }
    CHECK(after[i].count < 10);
    std::vector<Event> events;
    for (std::size_t k = 0; k < after[i].count; ++k) events.push_back(after[i].rows.event(k));
    const Told what = told_by(events);
    CHECK(what.left_out_allocs == 50);
    CHECK(what.allocs == 51);
    CHECK(what.frees == 51);
  }
}

TEST_CASE("several steps told as one: one mark, the peak of all, nothing lost in the counts") {
  LongRun run(50);
  const std::vector<OwnUnit> units = units_of(steps(run, 9));
  Summary summary;
  std::vector<Event> told;
  summary.keep(units[0].rows, told);
  RowBuffer group;
  Levels peak;
  for (std::size_t i = 1; i < 9; ++i) {
    group.append(units[i].rows);
    peak.raise_to(highest(units[i].rows));
  }
  summary.age(group.rows(), true, told);
  const std::vector<OwnUnit> after = units_of(told);
  REQUIRE(after.size() == 2);
  CHECK(highest(after[1].rows) == peak);
  CHECK(after[1].end() == units[8].end());
  const Told what = told_by(told);
  CHECK(what.allocs == run.allocs());
  CHECK(what.frees == run.frees());
  CHECK(what.steps == std::vector<std::uint64_t>{1, 9});
  std::uint32_t steps_told = 0;
  for (const Event& event : told) {
    if (event.kind == Kind::kAged) steps_told = event.flags;
  }
  CHECK(steps_told == 8);
}

TEST_CASE("the first units are kept, and of the others the unusual ones, the most unusual first") {
  // Room for 2 first units and 4 unusual ones of 1/64 each.
  const Shares shares{64 * kMiB};
  Survey survey(shares);
  std::vector<Event> all;
  for (std::uint64_t i = 0; i < 200; ++i) {
    std::uint64_t bytes = 100 * kMiB;
    if (i == 50) bytes = 150 * kMiB;                       // a new peak, and not the highest
    if (i == 60) bytes = 170 * kMiB;                       // the highest
    const std::uint64_t left = i == 70 ? 30 * kMiB : 512;  // growth
    std::vector<Event> step = step_with(bytes, left, i);
    if (i == 80 || i == 90) {
      Event event{};
      event.kind = i == 80 ? Kind::kRetry : Kind::kAllocFailed;
      event.time = i;
      event.size = kMiB;
      step.insert(step.begin(), event);
    }
    all.insert(all.end(), step.begin(), step.end());
  }
  for (OwnUnit unit : units_of(all)) {
    unit.bytes = static_cast<double>(kMiB);
    survey.look(unit);
  }
  const Survey::Choice choice = survey.choose();
  CHECK(choice.units == std::vector<std::uint64_t>{0, 1, 50, 60, 80, 90});
  CHECK(choice.bytes == 6.0 * kMiB);
  survey.distrust_sizes();  // room for 1 and 2
  CHECK(survey.choose().units == std::vector<std::uint64_t>{0, 60, 90});
}

TEST_CASE("a run of any length stays below the limit; nothing is lost but what is counted") {
  const TemporaryPath path;
  auto writer = std::make_unique<Writer>(std::make_unique<FileSink>(path.name(), false),
                                         Ageing::prepare({}, kMiB));
  Ageing ageing(kMiB, *writer);
  const std::uint64_t trace_id = writer->options().trace_id;
  REQUIRE(writer->write_metadata(R"({"script":"a.py"})", 17));
  LongRun run(200);
  std::uint64_t smaller_before = 0;
  for (int step = 0; step < 3000; ++step) {
    const std::vector<Event> events = run.next();
    REQUIRE(writer->append(events.data(), events.size()));
    if (ageing.work(*writer)) {
      REQUIRE(writer->staged() == 0);
      ageing.replace(writer);
      const Told told = told_by(read_back(path.name()).events);
      CHECK(told.allocs == run.allocs());
      CHECK(told.frees == run.frees());
      CHECK(told.left_out_allocs > smaller_before);
      smaller_before = told.left_out_allocs;
    }
    REQUIRE(ageing.why() == "");
    const std::uint64_t other = ageing.smaller() != nullptr ? ageing.smaller()->bytes_written() : 0;
    REQUIRE(writer->bytes_written() + other <= kMiB);
  }
  CHECK(ageing.rounds() >= 5);
  REQUIRE(writer->close("{}", 2));
  const ReadBack trace = read_back(path.name());
  CHECK(trace.problems == 0);
  CHECK(trace.metadata == R"({"script":"a.py"})");
  CHECK(trace.footer == "{}");
  CHECK(read_header(FileSource(path.name()), sizeof(Preamble)).trace_id == trace_id);
  const Told told = told_by(trace.events);
  CHECK(told.allocs == run.allocs());
  CHECK(told.frees == run.frees());
  CHECK(told.left_out_allocs > run.allocs() / 2);
  CHECK(std::is_sorted(told.steps.begin(), told.steps.end()));
  CHECK(told.steps.front() == 1);
  CHECK(told.steps.back() == 3000);
}

TEST_CASE(
    "so does a run without steps, which ages in pieces, and one with next to nothing but phases") {
  for (const auto marks : {LongRun::Marks::kNone, LongRun::Marks::kPhases}) {
    CAPTURE(marks == LongRun::Marks::kPhases);
    const TemporaryPath path;
    auto writer = std::make_unique<Writer>(std::make_unique<FileSink>(path.name(), false),
                                           Ageing::prepare({}, kMiB));
    Ageing ageing(kMiB, *writer);
    LongRun run(200, marks);
    for (int turn = 0; turn < 4000; ++turn) {
      const std::vector<Event> events = run.next();
      REQUIRE(writer->append(events.data(), events.size()));
      if (ageing.work(*writer)) ageing.replace(writer);
      REQUIRE(ageing.why() == "");
    }
    CHECK(ageing.rounds() >= 5);
    REQUIRE(writer->close("{}", 2));
    const ReadBack trace = read_back(path.name());
    CHECK(trace.problems == 0);
    const Told told = told_by(trace.events);
    CHECK(told.allocs == run.allocs());
    CHECK(told.frees == run.frees());
    CHECK(told.left_out_allocs > run.allocs() / 2);
    // The block that lives on is there to the last, in what is told and in the lines.
    const std::vector<OwnUnit> units = units_of(path.name(), SIZE_MAX);
    REQUIRE(units.size() == 1);
    CHECK(units[0].end().requested() == run.in_use());
  }
}

TEST_CASE("what can't be made smaller says why, and the file ends at the limit") {
  const TemporaryPath path;
  auto writer = std::make_unique<Writer>(std::make_unique<FileSink>(path.name(), false),
                                         Ageing::prepare({}, kMiB));
  Ageing ageing(kMiB, *writer);
  Event event{};
  event.kind = Kind::kAlloc;
  for (std::uint64_t i = 0; i < 2'000'000 && writer->error()[0] == '\0'; ++i) {
    event.time += i * 7919 % 1000;
    event.address = 512 * i;
    event.size = i * 104'729 % 9973;
    writer->append(&event, 1);
    if (ageing.work(*writer)) ageing.replace(writer);
  }
  CHECK(writer->error_number() == EFBIG);
  CHECK(ageing.why() == "what is in use takes more room to tell than there is");
  CHECK(ageing.smaller() == nullptr);
  struct stat status {};
  REQUIRE(::stat(path.name().c_str(), &status) == 0);
  CHECK(static_cast<std::uint64_t>(status.st_size) <= kMiB);
  CHECK(static_cast<std::uint64_t>(status.st_size) > kMiB * 9 / 10);
  CHECK(read_back(path.name()).events.size() > 100'000);
}

TEST_CASE("a file that was deleted is not made anew: ageing ends, and says why") {
  const TemporaryPath path;
  auto writer = std::make_unique<Writer>(std::make_unique<FileSink>(path.name(), false),
                                         Ageing::prepare({}, kMiB));
  Ageing ageing(kMiB, *writer);
  LongRun run(200);
  for (int step = 0; step < 3000 && ageing.why().empty(); ++step) {
    const std::vector<Event> events = run.next();
    REQUIRE(writer->append(events.data(), events.size()));
    if (step == 300) REQUIRE(unlink(path.name().c_str()) == 0);
    if (ageing.work(*writer)) ageing.replace(writer);
  }
  CHECK(ageing.why() == "No such file or directory");
  CHECK(ageing.rounds() == 0);
  CHECK_FALSE(path.exists());
}

}  // namespace gpumemtrace::ageing
