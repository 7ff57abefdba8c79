#include <doctest/doctest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "capture/drain.h"
#include "capture/flight_recorder.h"
#include "capture/flight_segments.h"
#include "capture/flight_window.h"
#include "capture/producer.h"
#include "capture/session.h"
#include "read_back.h"
#include "trace/writer.h"

namespace gpumemtrace::capture {
namespace {

namespace fs = std::filesystem;

struct Folder {
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "flight.XXXXXX").string();
    path = ::mkdtemp(pattern.data());
  }
  ~Folder() { fs::remove_all(path); }
  std::string file(const std::string& name) const { return (path / name).string(); }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(path)) {
      found.push_back(entry.path().filename().string());
    }
    std::sort(found.begin(), found.end());
    return found;
  }
  fs::path path;
};

Event event_of(Kind kind, std::uint64_t address, std::uint64_t size, std::uint64_t time_ns = 0) {
  Event event{};
  event.kind = kind;
  event.address = address;
  event.size = size;
  event.time = time_ns;
  return event;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// What a reader would know at the end: live blocks with sizes, and the last counters.
struct State {
  std::map<std::uint64_t, std::uint64_t> live;
  std::uint64_t requested = 0;
  std::uint64_t anomalies = 0;

  void take(const Event& event) {
    if (event.kind == Kind::kAlloc) {
      if (!live.emplace(event.address, event.size).second) ++anomalies;
      requested += event.size;
    } else if (event.kind == Kind::kFree) {
      const auto block = live.find(event.address);
      if (block == live.end()) {
        ++anomalies;
      } else {
        requested -= block->second;
        live.erase(block);
      }
    } else if (event.kind == Kind::kStats) {
      requested = event.size;
    }
  }
};

// A ring, a drain driven by hand, and a flight recorder.
class Bench {
 public:
  explicit Bench(std::uint64_t window_ns, std::uint64_t most_bytes = 1 << 30)
      : ring({.capacity = 4096}) {
    flight = std::make_shared<FlightRecorder>(
        FlightOptions{.window = {.window_ns = window_ns, .most_bytes = most_bytes},
                      .path = folder.file("t.gmt"),
                      .warn = [this](const std::string& line) { warnings += line; }});
    DrainOptions options;
    options.ring = &ring;
    options.flight = flight;
    options.flush_interval_ns = 0;
    options.device_sample_interval_ns = 0;
    options.lazy = true;
    options.output.is_file = false;
    options.output.path = folder.file("t.gmt");
    options.output.events_per_keyframe = 500;
    options.output.make_sink = [this] { return flight->make_sink(); };
    options.output.warn = [this](const std::string& line) { warnings += line; };
    drain = std::make_unique<Drain>(options, read_clock_pair());
  }

  void push(Kind kind, std::uint64_t address, std::uint64_t size = 0, std::uint32_t flags = 0) {
    Event event = event_of(kind, address, size);
    event.flags = flags;
    REQUIRE(capture::push(&ring, event));
    all.take(event);
    ++pushed;
  }

  // Asks from another thread; passes until it has its answer.
  FlightFile dump(const std::string& path, bool overwrite) {
    FlightFile file;
    std::atomic<bool> answered{false};
    std::thread asking([&] {
      file = flight->dump(path, overwrite);
      answered = true;
    });
    while (!answered) {
      drain->pass();
      std::this_thread::yield();
    }
    asking.join();
    return file;
  }

  Folder folder;
  Ring ring;
  std::shared_ptr<FlightRecorder> flight;
  std::unique_ptr<Drain> drain;
  std::string warnings;
  State all;
  std::uint64_t pushed = 0;
};

// doctest handles some itself.
void take_back_signals() {
  for (const int number : {SIGTERM, SIGHUP, SIGUSR2, SIGABRT, SIGSEGV, SIGFPE, SIGILL}) {
    signal(number, SIG_DFL);
  }
}

void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

}  // namespace

TEST_CASE("what went before the window is told again: blocks, counters, step, phases, names") {
  Bench bench(/*window_ns=*/20'000'000);
  bench.drain->add_metadata(R"({"script":"x","allocator":{"backend":"native","settings":null}})");
  bench.drain->add_metadata(R"({"allocator":{"settings":"a:\"1\",b"}})");
  std::mt19937 random(7);
  for (int round = 0; round < 60; ++round) {
    bench.push(Kind::kStep, 0, static_cast<std::uint64_t>(round));
    bench.push(Kind::kPhase, 0, 5, kPhaseEntered);
    for (int i = 0; i < 40; ++i) {
      const std::uint64_t address = 0x1000 * (1 + random() % 64);
      if (bench.all.live.contains(address)) {
        bench.push(Kind::kFree, address);
      } else {
        bench.push(Kind::kAlloc, address, 512 * (1 + random() % 9));
      }
    }
    bench.drain->pass();
    sleep_ms(2);
  }
  bench.drain->finish(R"({"reason":"exit"})");
  CHECK(bench.warnings.empty());
  const ReadBack trace = read_back(bench.folder.file("t.gmt"));
  CHECK(trace.problems == 0);
  REQUIRE(trace.events.size() < bench.pushed);
  CHECK(trace.events.size() > 100);

  const Event& first = trace.events.front();
  CHECK(first.kind == Kind::kStep);
  CHECK(first.flags == (kStepSet | kStepInside));
  State read;
  std::uint64_t last_ns = first.time;
  std::uint64_t next_step = first.size;
  std::uint64_t told = 0;
  bool is_told = true;
  for (const Event& event : trace.events) {
    CHECK(event.time >= last_ns);
    last_ns = event.time;
    is_told = is_told && event.time == first.time;
    told += is_told ? 1 : 0;
    if (event.kind == Kind::kStep) CHECK(event.size == next_step++);
    read.take(event);
  }
  CHECK(next_step == 60);
  CHECK(read.anomalies == 0);
  CHECK(read.live == bench.all.live);
  CHECK(read.requested == bench.all.requested);
  // At least the window is there, and not much more.
  CHECK(last_ns - first.time >= 20'000'000);
  CHECK(contains(trace.metadata, R"("script":"x")"));
  CHECK(contains(trace.metadata, R"("allocator":{"backend":"native","settings":"a:\"1\",b"})"));
  CHECK(contains(trace.metadata, R"("flight_recorder":{"window_ns":20000000,"trigger":"end")"));
  CHECK(contains(trace.metadata, R"("before":{"events":)"));
  CHECK(contains(trace.footer, R"("reason":"exit","totals":{"events":)"));
  CHECK(contains(trace.names, "\"threads\":[[1,"));
  const bool has_phase = std::any_of(
      trace.events.begin(), trace.events.begin() + static_cast<long>(told),
      [](const Event& event) { return event.kind == Kind::kPhase && event.flags == 0; });
  CHECK(has_phase);
}

TEST_CASE("memory stays within its limit, however long the window") {
  constexpr std::uint64_t kMost = 20'000;
  Bench bench(3600'000'000'000, kMost);
  std::mt19937_64 random(3);
  std::uint64_t most_held = 0;
  for (int round = 0; round < 100; ++round) {
    for (int i = 0; i < 100; ++i) bench.push(Kind::kAlloc, random(), random() % 100'000);
    for (int i = 0; i < 100; ++i) bench.push(Kind::kFree, bench.all.live.begin()->first);
    bench.drain->pass();
    most_held = std::max(most_held, bench.flight->window().bytes());
  }
  CHECK(most_held <= kMost);
  CHECK(bench.flight->window().before().events() > 10'000);
  bench.drain->finish("{}");
  State read;
  for (const Event& event : read_back(bench.folder.file("t.gmt")).events) read.take(event);
  CHECK(read.anomalies == 0);
  CHECK(read.live == bench.all.live);
}

TEST_CASE("nothing is written without an allocator event, and whoever asks is told") {
  Bench bench(1'000'000'000);
  bench.push(Kind::kMark, 0, 1);
  const FlightFile file = bench.dump("", false);
  CHECK(file.error == "nothing has been recorded yet");
  bench.drain->finish("{}");
  CHECK(bench.folder.names().empty());
  CHECK(bench.flight->dump("", false).error == "nothing was recorded");
}

TEST_CASE("running out of memory writes one file per window, requests one each") {
  Bench bench(3600'000'000'000);
  bench.push(Kind::kAlloc, 512, 512);
  bench.drain->pass();
  CHECK(bench.folder.names().empty());
  for (int i = 0; i < 3; ++i) {
    bench.push(Kind::kAllocFailed, 0, 1 << 20);
    bench.push(Kind::kStats, 512, 512);  // what the hook says after it
    bench.drain->pass();
    bench.drain->pass();
  }
  CHECK(bench.folder.names() == std::vector<std::string>{"t.oom-1.gmt"});
  const ReadBack oom = read_back(bench.folder.file("t.oom-1.gmt"));
  CHECK(oom.events.size() == 3);
  CHECK(contains(oom.metadata, R"("trigger":"oom")"));
  CHECK(contains(oom.metadata, R"("told_events":0)"));
  CHECK(contains(oom.footer, R"("reason":"oom")"));

  const std::string own = bench.folder.file("own.gmt");
  std::vector<FlightFile> files;
  for (std::size_t i = 0; i < 4; ++i) files.push_back(bench.dump(i < 2 ? "" : own, i == 3));
  CHECK(files[0].path == bench.folder.file("t.dump-1.gmt"));
  CHECK(files[1].path == bench.folder.file("t.dump-2.gmt"));
  CHECK(files[2].path == own);
  CHECK(files[2].error.empty());
  CHECK(files[3].path == own);
  CHECK(files[3].error.empty());  // overwritten, as asked
  bench.drain->finish("{}");
  CHECK(read_back(bench.folder.file("t.gmt")).events.size() == bench.pushed);
  CHECK(bench.flight->files().size() == 5);  // own.gmt once
}

TEST_CASE("a taken name is not overwritten; a folder that is gone is one warning") {
  Bench bench(1'000'000'000);
  bench.push(Kind::kAlloc, 512, 512);
  bench.drain->pass();
  SUBCASE("taken") {
    fs::create_symlink("nowhere", bench.folder.path / "t.gmt");
    bench.drain->finish("{}");
    CHECK(bench.folder.names() == std::vector<std::string>{"t.1.gmt", "t.gmt"});
    CHECK(bench.warnings.empty());
  }
  SUBCASE("gone") {
    fs::remove_all(bench.folder.path);
    bench.drain->finish("{}");
    CHECK(contains(bench.warnings, "No such file or directory"));
    CHECK(bench.drain->stats().error == "No such file or directory");
    CHECK_FALSE(bench.drain->stats().file_created);
  }
}

TEST_CASE("segments are told as they are left: taken, mapped in pieces, cut, given back") {
  FlightSegments segments;
  const auto feed = [&](Kind kind, std::uint64_t address, std::uint64_t size) {
    segments.feed(event_of(kind, address, size));
  };
  feed(Kind::kSegmentAlloc, 100, 50);
  feed(Kind::kSegmentAlloc, 200, 50);
  feed(Kind::kSegmentPool, 200, 7);
  feed(Kind::kSegmentFree, 100, 50);
  feed(Kind::kSegmentMap, 1000, 100);
  feed(Kind::kSegmentUnmap, 1020, 30);
  feed(Kind::kSegmentMap, 1010, 40);  // 1020 to 1050, and 1100 to 1110
  feed(Kind::kSegmentUnmap, 1000, 5);
  feed(Kind::kSegmentAlloc, 240, 100);            // over the end of another one
  feed(Kind::kSegmentFree, UINT64_MAX - 5, 100);  // no range
  std::vector<Event> told;
  segments.tell(told);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> pieces;
  for (const Event& event : told) {
    if (event.kind != Kind::kSegmentPool) pieces.emplace_back(event.address, event.size);
  }
  using Piece = std::pair<std::uint64_t, std::uint64_t>;
  CHECK(pieces ==
        std::vector<Piece>{{200, 40}, {240, 100}, {1005, 15}, {1020, 30}, {1050, 50}, {1100, 10}});
  CHECK(told[1].kind == Kind::kSegmentPool);
  CHECK(told[1].size == 7);
}

TEST_CASE("a signal that ends the process leaves a file, and still ends it; a fork is left alone") {
  // What a child should die of, and which file it leaves.
  struct Case {
    int signal;
    const char* file;
  };
  for (const Case c : {Case{SIGTERM, "t.gmt"}, Case{SIGHUP, "t.gmt"}, Case{SIGABRT, "t.gmt"},
                       Case{SIGSEGV, "t.gmt"}, Case{SIGUSR2, "t.sigusr2-1.gmt"}}) {
    CAPTURE(c.signal);
    const Folder folder;
    const pid_t child = fork();
    if (child == 0) {
      take_back_signals();
      alarm(30);
      start_session({.path = folder.file("t.gmt"), .flight_window_ms = 60'000, .lazy = true});
      Event event = event_of(Kind::kAlloc, 512, 512);
      push(active_ring(), event);
      sleep_ms(20);
      // A worker is told to end: it has no drain thread that would see a flag.
      const pid_t worker = fork();
      if (worker == 0) {
        alarm(30);
        for (;;) pause();
      }
      sleep_ms(5);
      kill(worker, SIGTERM);
      int status = 0;
      waitpid(worker, &status, 0);
      if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGTERM) _exit(77);
      if (c.signal == SIGABRT) abort();
      raise(c.signal);
      for (int i = 0; i < 1000 && !fs::exists(folder.file(c.file)); ++i) sleep_ms(5);
      sleep_ms(50);
      _exit(c.signal == SIGUSR2 ? 0 : 78);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    if (c.signal == SIGUSR2) {
      CHECK(WIFEXITED(status));
      CHECK(WEXITSTATUS(status) == 0);
    } else {
      CHECK(WIFSIGNALED(status));
      CHECK(WTERMSIG(status) == c.signal);
    }
    CHECK(folder.names() == std::vector<std::string>{c.file});
    const ReadBack trace = read_back(folder.file(c.file));
    CHECK(trace.problems == 0);
    CHECK(trace.events.size() >= 1);
  }
}

TEST_CASE("handlers of the program's own stay, and ours go with the session") {
  static volatile sig_atomic_t own_calls = 0;
  const Folder folder;
  take_back_signals();
  struct sigaction own {};
  own.sa_handler = [](int) { own_calls = own_calls + 1; };
  struct sigaction before {};
  REQUIRE(sigaction(SIGTERM, &own, &before) == 0);
  REQUIRE((before.sa_handler == SIG_DFL));
  start_session({.path = folder.file("t.gmt"), .flight_window_ms = 60'000});
  raise(SIGTERM);
  CHECK(own_calls == 1);
  stop_session("{}");
  CHECK(folder.names() == std::vector<std::string>{"t.gmt"});
  signal(SIGTERM, SIG_DFL);
  for (const int number : {SIGTERM, SIGHUP, SIGUSR2, SIGABRT, SIGFPE, SIGILL}) {
    struct sigaction now {};
    sigaction(number, nullptr, &now);
    CAPTURE(number);
    CHECK((now.sa_handler == SIG_DFL));
  }
}

}  // namespace gpumemtrace::capture
