// Over 400 lines: what a drain does shows only with a ring, a sink and devices driven by hand; its
// cases share them.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "capture/drain.h"
#include "capture/names.h"
#include "capture/producer.h"
#include "read_back.h"
#include "sinks.h"

namespace gpumemtrace::capture {
namespace {

constexpr std::uint64_t kNearWrap = UINT64_MAX - 20;

// A drain driven by hand: each pass() is the test's, so what happens between two is known.
class Bench {
 public:
  explicit Bench(RingOptions ring_options = {.capacity = 64, .start_position = kNearWrap},
                 bool lazy = false)
      : ring(ring_options) {
    options.ring = &ring;
    options.lazy = lazy;
    options.flush_interval_ns = 0;  // with every pass
    options.output.path = "trace.gmt";
    options.output.make_sink = [this] {
      ++sinks_made;
      return std::make_unique<MemorySink>(bytes);
    };
    options.output.warn = [this](const std::string& line) { warnings.push_back(line); };
  }

  Drain& start() {
    drain = std::make_unique<Drain>(options, read_clock_pair());
    if (!options.lazy) drain->open();
    return *drain;
  }

  bool push(Kind kind, std::uint64_t address, std::uint64_t size = 0, std::int16_t device = 0) {
    Event event{};
    event.kind = kind;
    event.address = address;
    event.size = size;
    event.device = device;
    return capture::push(&ring, event);
  }

  Ring ring;
  DrainOptions options;
  std::unique_ptr<Drain> drain;
  std::vector<std::uint8_t> bytes;
  std::vector<std::string> warnings;
  int sinks_made = 0;
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Where a text first stands in the file, counted in bytes.
std::size_t place_of(const std::vector<std::uint8_t>& bytes, const std::string& text) {
  return std::string(bytes.begin(), bytes.end()).find(text);
}

}  // namespace

TEST_CASE("what is pushed stands in the file, in order, in ns since the beginning") {
  Bench bench;
  Drain& drain = bench.start();
  for (std::uint64_t i = 0; i < 100; ++i) {
    REQUIRE(bench.push(i % 2 == 0 ? Kind::kAlloc : Kind::kFree, i, i % 2 == 0 ? 512 : 0));
    if (i % 30 == 29) drain.pass();
  }
  drain.finish(R"({"reason":"closed"})");
  const ReadBack trace = read_back(bench.bytes);
  REQUIRE(trace.events.size() == 100);
  std::uint64_t last = 0;
  for (std::uint64_t i = 0; i < 100; ++i) {
    CHECK(trace.events[i].address == i);
    CHECK(trace.events[i].thread == thread_index());
    CHECK(trace.events[i].time >= last);
    last = trace.events[i].time;
  }
  CHECK(last > 0);
  CHECK(last < 60'000'000'000);
  CHECK(contains(trace.names, "\"threads\":[[1,"));
  CHECK(
      contains(trace.footer, R"("reason":"closed","totals":{"events":100,"dropped":0,"gaps":0,)"));
  CHECK(contains(trace.footer, R"("ring_capacity":64,"ring_high_water":30)"));
  CHECK(trace.problems == 0);
  CHECK(bench.warnings.empty());
}

TEST_CASE("a gap stands where the events would have stood, and says what they were") {
  Bench bench({.capacity = 8, .margin = 2, .start_position = kNearWrap});
  Drain& drain = bench.start();
  std::uint64_t next = 0;
  for (int round = 0; round < 5; ++round) {
    while (bench.push(Kind::kAlloc, next, 1000)) ++next;  // one is lost here,
    CHECK_FALSE(bench.push(Kind::kAlloc, 999, 24));       // one here,
    CHECK_FALSE(bench.push(Kind::kFree, 999));            // and a free
    drain.pass();
  }
  drain.finish("{}");
  const ReadBack trace = read_back(bench.bytes);
  REQUIRE(trace.events.size() == 5 * 7);
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    const Event& event = trace.events[i];
    if (i % 7 != 6) {
      CHECK(event.kind == Kind::kAlloc);
      CHECK(event.address == i / 7 * 6 + i % 7);
      continue;
    }
    CHECK(event.kind == Kind::kGap);
    CHECK(event.device == -1);
    CHECK(event.address == 3);
    CHECK(event.size == 1024);
    CHECK(event.stream == 1);
    CHECK(event.extra < 10'000'000'000);
    CHECK(event.time >= trace.events[i - 1].time);
  }
  CHECK(drain.stats().dropped == 15);
  CHECK(drain.stats().gaps == 5);
  CHECK(contains(trace.footer, R"("dropped":15,"gaps":5)"));
}

TEST_CASE("waits for room are told in the run record and in the footer") {
  Bench bench({.capacity = 8, .margin = 2, .start_position = kNearWrap});
  bench.ring.set_patience(1'000'000);
  Drain& drain = bench.start();
  drain.pass();
  CHECK_FALSE(contains(read_back(bench.bytes).metadata, "stalls"));
  for (int round = 1; round <= 3; ++round) {
    while (bench.push(Kind::kAlloc, 1, 512)) {
    }
    drain.pass();
    CHECK(drain.stats().stalls.count == static_cast<std::uint64_t>(round));
  }
  drain.finish("{}");
  const ReadBack trace = read_back(bench.bytes);
  CHECK(contains(trace.metadata, R"({"stalls":{"count":3,"total_ns":)"));
  CHECK(contains(trace.footer, R"("stalls":{"count":3,"total_ns":)"));
  CHECK(drain.stats().stalls.total_ns >= 3'000'000);
  CHECK(drain.stats().stalls.longest_ns < drain.stats().stalls.total_ns);
}

TEST_CASE("a loss that nothing follows is still told") {
  Bench bench({.capacity = 8, .margin = 2, .start_position = kNearWrap});
  Drain& drain = bench.start();
  while (bench.push(Kind::kAlloc, 1, 512)) {
  }
  drain.finish("{}");
  const ReadBack trace = read_back(bench.bytes);
  REQUIRE(trace.events.size() == 7);
  CHECK(trace.events.back().kind == Kind::kGap);
  CHECK(trace.events.back().size == 512);
}

TEST_CASE("racing producers: kept and lost add up, gaps account for every byte") {
  constexpr int kProducers = 4;
  constexpr std::uint64_t kEach = 30'000;
  Bench bench({.capacity = 32, .margin = -2, .start_position = kNearWrap});
  Drain& drain = bench.start();
  std::atomic<int> running{kProducers};
  std::atomic<std::uint64_t> lost_bytes{0};
  std::atomic<std::uint64_t> lost_frees{0};
  std::vector<std::thread> threads;
  for (int id = 0; id < kProducers; ++id) {
    threads.emplace_back([&] {
      for (std::uint64_t i = 1; i <= kEach; ++i) {
        const bool alloc = i % 3 != 0;
        if (bench.push(alloc ? Kind::kAlloc : Kind::kFree, i, alloc ? i : 0)) continue;
        (alloc ? lost_bytes : lost_frees) += alloc ? i : 1;
      }
      running.fetch_sub(1);
    });
  }
  while (running.load() != 0) drain.pass();
  for (auto& thread : threads) thread.join();
  drain.finish("{}");

  const ReadBack trace = read_back(bench.bytes);
  std::map<std::uint32_t, std::uint64_t> last_of_thread;
  std::uint64_t last_time = 0;
  std::uint64_t kept = 0;
  std::uint64_t lost = 0;
  std::uint64_t bytes = 0;
  std::uint64_t frees = 0;
  std::uint64_t out_of_order = 0;
  for (const Event& event : trace.events) {
    if (event.time < last_time) ++out_of_order;
    last_time = event.time;
    if (event.kind == Kind::kGap) {
      lost += event.address;
      bytes += event.size;
      frees += event.stream;
      continue;
    }
    ++kept;
    if (event.address <= last_of_thread[event.thread]) ++out_of_order;
    last_of_thread[event.thread] = event.address;
  }
  CHECK(out_of_order == 0);
  CHECK(lost > 0);
  CHECK(kept + lost == kProducers * kEach);
  CHECK(bytes == lost_bytes.load());
  CHECK(frees == lost_frees.load());
  CHECK(drain.stats().dropped == lost);
}

TEST_CASE("a sink that fails costs one warning, and the ring goes on being emptied") {
  Bench bench;
  bench.options.output.make_sink = [] { return std::make_unique<FailingSink>(1500, ENOSPC); };
  Drain& drain = bench.start();
  std::uint64_t accepted = 0;
  for (int round = 0; round < 100; ++round) {
    for (std::uint64_t i = 0; i < 40; ++i)
      accepted += bench.push(Kind::kAlloc, i * 7919, i) ? 1 : 0;
    drain.pass();
  }
  drain.finish("{}");
  CHECK(accepted == 4000);  // never full
  CHECK(bench.ring.unread() == 0);
  REQUIRE(bench.warnings.size() == 1);
  CHECK(contains(bench.warnings[0],
                 "gpumemtrace: can't write trace.gmt: No space left on device; "
                 "training continues; the trace ends at "));
  CHECK(bench.warnings[0].back() == '\n');
  const DrainStats stats = drain.stats();
  CHECK(stats.error == "No space left on device");
  CHECK(stats.events > 0);
  CHECK(stats.events < 4000);
  CHECK(contains(bench.warnings[0], std::to_string(stats.events) + " events)"));
}

TEST_CASE("a lazy file is made by the first allocator event, with all that came before") {
  Bench bench({.capacity = 64}, true);
  name_table().begin_session();
  Drain& drain = bench.start();
  drain.add_metadata(R"({"run":"record"})");
  const auto phase = name_table().define_phase(0, "lazy test phase");
  REQUIRE(bench.push(Kind::kPhase, 0, phase, -1));
  REQUIRE(bench.push(Kind::kStep, 0, 1, -1));
  REQUIRE(bench.push(Kind::kMark, 0, 1, -1));
  drain.pass();
  CHECK(bench.sinks_made == 0);
  CHECK_FALSE(drain.stats().file_created);
  REQUIRE(bench.push(Kind::kAlloc, 5, 512));
  drain.pass();
  CHECK(bench.sinks_made == 1);
  CHECK(drain.stats().file_created);
  drain.finish("{}");
  const ReadBack trace = read_back(bench.bytes);
  REQUIRE(trace.events.size() == 4);
  CHECK(trace.events[0].kind == Kind::kPhase);
  CHECK(trace.events[3].kind == Kind::kAlloc);
  CHECK(contains(trace.metadata, R"({"run":"record"})"));
  // Names stand before the events that use them.
  CHECK(place_of(bench.bytes, "lazy test phase") < bench.bytes.size() / 2);
  CHECK(place_of(bench.bytes, "record") < place_of(bench.bytes, "lazy test phase"));
  name_table().end_session();
}

TEST_CASE("a lazy file that nobody needs is never made") {
  Bench bench({.capacity = 64}, true);
  Drain& drain = bench.start();
  REQUIRE(bench.push(Kind::kPhase, 0, 1, -1));
  drain.finish("{}");
  CHECK(bench.sinks_made == 0);
  CHECK(bench.bytes.empty());
}

TEST_CASE("a lazy file that can't be made costs one warning") {
  Bench bench({.capacity = 64}, true);
  bench.options.output.make_sink = []() -> std::unique_ptr<Sink> {
    throw std::system_error(EACCES, std::generic_category());
  };
  Drain& drain = bench.start();
  for (int i = 0; i < 3; ++i) {
    REQUIRE(bench.push(Kind::kAlloc, 1, 512));
    drain.pass();
  }
  drain.finish("{}");
  REQUIRE(bench.warnings.size() == 1);
  CHECK(contains(bench.warnings[0], "Permission denied"));
  CHECK(drain.stats().events == 0);
}

TEST_CASE("of the events before a lazy file the latest 65,536 are kept, the rest is a gap") {
  Bench bench({.capacity = 1 << 17}, true);
  Drain& drain = bench.start();
  for (std::uint64_t i = 0; i < 70'000; ++i) REQUIRE(bench.push(Kind::kStep, 0, i, -1));
  drain.pass();
  REQUIRE(bench.push(Kind::kAlloc, 1, 512));
  drain.finish("{}");
  const ReadBack trace = read_back(bench.bytes);
  REQUIRE(trace.events.size() == 65'536 + 2);
  CHECK(trace.events[0].kind == Kind::kGap);
  CHECK(trace.events[0].address == 70'000 - 65'536);
  CHECK(trace.events[1].size == 70'000 - 65'536);
}

TEST_CASE("metadata goes out when it is new: what was added, and what the source says") {
  Bench bench;
  static std::string said;
  said = R"({"simulated":1})";
  set_metadata_source([](char* out, std::size_t capacity) noexcept -> std::size_t {
    if (said.size() > capacity) return 0;
    std::memcpy(out, said.data(), said.size());
    return said.size();
  });
  Drain& drain = bench.start();
  drain.pass();
  drain.pass();
  drain.add_metadata(R"({"added":2})");
  said = R"({"simulated":3})";
  drain.finish("{}");
  set_metadata_source(nullptr);
  CHECK(read_back(bench.bytes).metadata == R"({"simulated":1}{"added":2}{"simulated":3})");
}

TEST_CASE("the memory of devices in use is sampled, and told again only when it changes") {
  Bench bench;
  bench.options.device_sample_interval_ns = 1;
  static std::uint64_t used;
  used = 1000;
  DeviceProbe probe{};
  probe.device_count = 3;
  probe.mem_info = [](int device, std::uint64_t* used_bytes, std::uint64_t* capacity) noexcept {
    *used_bytes = used + static_cast<std::uint64_t>(device);
    *capacity = 80'000;
    return true;
  };
  set_device_probe(probe);
  Drain& drain = bench.start();
  drain.pass();  // no device in use yet
  REQUIRE(bench.push(Kind::kAlloc, 1, 512, 2));
  for (int i = 0; i < 5; ++i) drain.pass();
  used = 5000;
  drain.pass();
  drain.finish("{}");
  set_device_probe({});
  ReadBack trace = read_back(bench.bytes);
  const auto is_host = [](const Event& event) { return event.kind == Kind::kHostUsed; };
  const auto hosts = std::count_if(trace.events.begin(), trace.events.end(), is_host);
  CHECK(hosts >= 1);  // and again whenever the process has grown
  std::erase_if(trace.events, is_host);
  REQUIRE(trace.events.size() == 4);
  CHECK(trace.events[3].size == 5002);  // as it is at the end, changed or not
  CHECK(trace.events[1].kind == Kind::kDeviceUsed);
  CHECK(trace.events[1].device == 2);
  CHECK(trace.events[1].size == 1002);
  CHECK(trace.events[1].stream == 80'000);
  CHECK(trace.events[1].address == 0);
  CHECK(trace.events[2].size == 5002);
  CHECK(trace.events[2].time >= trace.events[1].time);
}

TEST_CASE("the memory of devices is looked at when a phase is new, and when that first time ends") {
  Bench bench;
  bench.options.device_sample_interval_ns = std::uint64_t{1} << 62;
  DeviceProbe probe{};
  probe.device_count = 1;
  probe.mem_info = [](int, std::uint64_t* used_bytes, std::uint64_t* capacity) noexcept {
    *used_bytes = 7;
    *capacity = 80'000;
    return true;
  };
  set_device_probe(probe);
  Drain& drain = bench.start();
  REQUIRE(bench.push(Kind::kAlloc, 1, 512, 0));
  drain.pass();  // the first sample of all
  std::size_t samples[4] = {};
  for (const std::uint64_t path : {1, 0, 1, 0}) {
    REQUIRE(bench.push(Kind::kPhase, 0, path, -1));
    drain.pass();
  }
  drain.finish("{}");
  set_device_probe({});
  const ReadBack trace = read_back(bench.bytes);
  std::size_t phases = 0;
  for (const Event& event : trace.events) {
    if (event.kind == Kind::kPhase && phases < 3) ++phases;
    if (event.kind == Kind::kDeviceUsed) ++samples[phases];
  }
  CHECK(samples[0] == 1);
  CHECK(samples[1] == 1);  // path 1 is new
  CHECK(samples[2] == 1);  // it has ended, and 0 is new
  CHECK(samples[3] == 2);  // that has ended too; and the end of the recording
}

}  // namespace gpumemtrace::capture
