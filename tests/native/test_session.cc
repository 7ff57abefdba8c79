#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <map>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "capture/producer.h"
#include "capture/session.h"
#include "read_back.h"

namespace gpumemtrace::capture {
namespace {

SessionOptions to(const TemporaryPath& path) {
  SessionOptions options;
  options.path = path.name();
  options.ring_bytes = 1 << 16;
  options.drain_interval_ms = 1;
  return options;
}

bool record(std::uint64_t address, Ring* ring = active_ring()) {
  if (ring == nullptr) return false;
  Event event{};
  event.kind = Kind::kAlloc;
  event.address = address;
  return push(ring, event);
}

}  // namespace

TEST_CASE("a session records from start to stop, into a file of its own") {
  const TemporaryPath path;
  CHECK_FALSE(session_active());
  CHECK_FALSE(record(1));
  start_session(to(path));
  CHECK(session_active());
  for (std::uint64_t i = 0; i < 500; ++i) REQUIRE(record(i));
  const SessionStats stats = stop_session(R"({"reason":"closed"})");
  CHECK_FALSE(session_active());
  CHECK(stats.path == path.name());
  CHECK(stats.events == 500);
  CHECK(stats.dropped == 0);
  CHECK(stats.error.empty());
  CHECK(stats.file_created);
  CHECK(stats.bytes_written > 0);
  CHECK(stats.ring_capacity == 1024);
  const ReadBack trace = read_back(path.name());
  CHECK(trace.events.size() == 500);
  CHECK(trace.metadata.find(R"({"clock":{"source":")") != std::string::npos);
  CHECK(trace.footer.find("\"reason\":\"closed\"") != std::string::npos);
  CHECK(stop_session("{}").events == 500);  // nothing to do any more
}

TEST_CASE("two sessions at once are refused, one after the other are not") {
  const TemporaryPath first;
  const TemporaryPath second;
  start_session(to(first));
  CHECK_THROWS_AS(start_session(to(second)), std::logic_error);
  CHECK_FALSE(second.exists());
  CHECK(record(1));
  stop_session("{}");
  start_session(to(second));
  CHECK(record(2));
  CHECK(record(3));
  stop_session("{}");
  CHECK(read_back(first.name()).events.size() == 1);
  CHECK(read_back(second.name()).events.size() == 2);
  CHECK_THROWS_AS(start_session(to(first)), std::system_error);  // it is there already
  CHECK_FALSE(session_active());
  CHECK(read_back(first.name()).events.size() == 1);
}

TEST_CASE("a thread that is late with its push after a stop hurts nobody") {
  const TemporaryPath first;
  const TemporaryPath second;
  start_session(to(first));
  Ring* ring = active_ring();
  stop_session("{}");
  const std::uint64_t skipped = session_stats().skipped;
  count_skipped();
  CHECK(session_stats().skipped == skipped + 1);
  for (std::uint64_t i = 0; i < 5000; ++i) record(i, ring);  // more than it has room for
  start_session(to(second));
  CHECK(active_ring() != ring);
  CHECK(record(5, ring) == false);  // still full, and nobody's
  CHECK(record(77));
  stop_session("{}");
  const ReadBack trace = read_back(second.name());
  REQUIRE(trace.events.size() == 1);
  CHECK(trace.events[0].address == 77);
  CHECK(session_stats().skipped == skipped + 1 + 5000);
}

TEST_CASE("the shortest life of a session, many times, with threads that never stop pushing") {
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      for (std::uint64_t n = 0; !stop.load(); ++n) {
        if (!record(n)) count_skipped();
      }
    });
  }
  for (int i = 0; i < 30; ++i) {
    const TemporaryPath path;
    start_session(to(path));
    std::this_thread::sleep_for(std::chrono::milliseconds(i % 3));
    stop_session("{}");
    CHECK_FALSE(read_back(path.name()).footer.empty());
  }
  stop = true;
  for (auto& thread : threads) thread.join();
}

TEST_CASE("eight threads at once: every event is in the file, once") {
  constexpr std::uint64_t kEach = 50'000;
  const TemporaryPath path;
  SessionOptions options = to(path);
  options.ring_bytes = 1 << 25;  // room for all of them, whatever the drain does
  start_session(options);
  std::vector<std::thread> threads;
  std::atomic<std::uint64_t> accepted{0};
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      std::uint64_t mine = 0;
      for (std::uint64_t n = 1; n <= kEach; ++n) mine += record(n) ? 1 : 0;
      accepted += mine;
    });
  }
  for (auto& thread : threads) thread.join();
  const SessionStats stats = stop_session("{}");
  CHECK(accepted == 8 * kEach);
  CHECK(stats.dropped == 0);
  const ReadBack trace = read_back(path.name());
  CHECK(trace.events.size() == 8 * kEach);
  std::map<std::uint32_t, std::uint64_t> last;
  std::uint64_t wrong = 0;
  for (const Event& event : trace.events) {
    if (event.address != ++last[event.thread]) ++wrong;
  }
  CHECK(wrong == 0);
  CHECK(last.size() == 8);
}

TEST_CASE("a forked child records nothing and leaves its parent's file alone") {
  const TemporaryPath path;
  start_session(to(path));
  REQUIRE(record(1));
  const pid_t child = fork();
  if (child == 0) {
    bool good = !session_active() && active_ring() == nullptr && !record(2);
    good = good && stop_session("{}").events == 0 && session_stats().path.empty();
    count_skipped();
    good = good && session_stats().skipped == 0;
    _exit(good ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(record(3));
  CHECK(stop_session("{}").events == 2);
  const ReadBack trace = read_back(path.name());
  REQUIRE(trace.events.size() == 2);
  CHECK(trace.events[1].address == 3);
  CHECK_FALSE(trace.footer.empty());
}

TEST_CASE("a ring of a silly size is refused before anything is made") {
  const TemporaryPath path;
  SessionOptions options = to(path);
  options.ring_bytes = 100;
  CHECK_THROWS_AS(start_session(options), std::invalid_argument);
  CHECK_FALSE(path.exists());
  CHECK_FALSE(session_active());
}

}  // namespace gpumemtrace::capture
