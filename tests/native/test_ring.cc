#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <thread>
#include <vector>

#include "capture/clock.h"
#include "capture/producer.h"
#include "capture/ring.h"

namespace gpumemtrace::capture {
namespace {

// A ring so small, started so close to the end of its counter, that laps, overflow and the
// counter's wrap-around all happen within a few pushes.
constexpr std::uint64_t kNearWrap = UINT64_MAX - 20;

Event alloc_of(std::uint64_t number, std::uint64_t bytes = 512) {
  Event event{};
  event.kind = Kind::kAlloc;
  event.address = number;
  event.size = bytes;
  return event;
}

bool push_one(Ring& ring, Event event) { return ring.push(event); }

std::vector<Event> pop_all(Ring& ring) {
  std::vector<Event> events(ring.capacity());
  events.resize(ring.pop(events.data(), events.size(), ring.head()));
  return events;
}

}  // namespace

TEST_CASE("events come out as they went in, over many laps and the counter's wrap") {
  Ring ring({.capacity = 8, .start_position = kNearWrap});
  std::uint64_t next_in = 0;
  std::uint64_t next_out = 0;
  std::uint64_t last_time = 0;
  while (next_out < 100) {
    for (std::uint64_t i = 0; i < 1 + next_out % 5; ++i) {
      REQUIRE(push_one(ring, alloc_of(next_in++)));
    }
    for (const Event& event : pop_all(ring)) {
      CHECK(event.address == next_out++);
      CHECK(event.time >= last_time);
      last_time = event.time;
    }
  }
  CHECK(next_in == next_out);
  CHECK(ring.tail() < 200);  // it has wrapped
}

TEST_CASE("an empty ring gives nothing, a small limit is kept, an end is not passed") {
  Ring ring({.capacity = 8, .start_position = kNearWrap});
  CHECK(pop_all(ring).empty());
  for (std::uint64_t i = 0; i < 5; ++i) REQUIRE(push_one(ring, alloc_of(i)));
  std::vector<Event> events(8);
  CHECK(ring.pop(events.data(), 2, ring.head()) == 2);
  CHECK(ring.pop(events.data(), 8, kNearWrap + 3) == 1);
  CHECK(events[0].address == 2);
  CHECK(ring.unread() == 2);
}

TEST_CASE("a full ring drops the newest and counts what they were") {
  Ring ring({.capacity = 8, .margin = 2, .start_position = kNearWrap});
  for (std::uint64_t i = 0; i < 6; ++i) REQUIRE(push_one(ring, alloc_of(i)));
  CHECK_FALSE(ring.resync_wanted(0));
  CHECK_FALSE(push_one(ring, alloc_of(6, 1000)));
  CHECK_FALSE(push_one(ring, alloc_of(7, 24)));
  Event lost_free = alloc_of(0);
  lost_free.kind = Kind::kFree;
  lost_free.device = 3;
  CHECK_FALSE(push_one(ring, lost_free));
  Event lost_phase{};
  lost_phase.kind = Kind::kPhase;
  lost_phase.size = 77;
  lost_phase.device = -1;
  CHECK_FALSE(push_one(ring, lost_phase));

  const Loss loss = ring.take_loss();
  CHECK(loss.events == 4);
  CHECK(loss.alloc_bytes == 1024);
  CHECK(loss.frees == 1);
  CHECK(loss.first_ticks > 0);
  CHECK(loss.last_ticks >= loss.first_ticks);
  CHECK_FALSE(ring.take_loss().any());

  CHECK(ring.resync_wanted(0));
  CHECK(ring.resync_wanted(3));
  CHECK_FALSE(ring.resync_wanted(1));
  ring.clear_resync(0);
  CHECK_FALSE(ring.resync_wanted(0));
  CHECK(ring.resync_wanted(3));

  const auto kept = pop_all(ring);
  REQUIRE(kept.size() == 6);
  CHECK(kept.back().address == 5);
  CHECK(push_one(ring, alloc_of(8)));
}

TEST_CASE("a position a whole lap ahead is abandoned: counted, stepped over, nothing overwritten") {
  Ring ring({.capacity = 8, .margin = -20, .start_position = kNearWrap});
  std::uint64_t next = 0;
  for (int round = 0; round < 200; ++round) {
    const std::uint64_t first = next;
    for (int i = 0; i < 8; ++i) REQUIRE(push_one(ring, alloc_of(next++)));
    for (int i = 0; i < 20; ++i)
      CHECK_FALSE(push_one(ring, alloc_of(999, 10)));  // reserved in vain
    CHECK(ring.unread() == 28);
    CHECK_FALSE(push_one(ring, alloc_of(999, 10)));  // and here the check itself says no
    CHECK(ring.unread() == 28);
    const Loss loss = ring.take_loss();
    CHECK(loss.events == 21);
    CHECK(loss.alloc_bytes == 210);
    std::vector<Event> kept(64);
    REQUIRE(ring.pop(kept.data(), 64, ring.head()) == 8);
    for (std::uint64_t i = 0; i < 8; ++i) CHECK(kept[i].address == first + i);
    CHECK(ring.unread() == 0);
  }
}

TEST_CASE("nothing is lost, doubled, reordered or overwritten, whoever races") {
  // More producers than the margin and than the ring has slots; the consumer is slow on purpose.
  struct Setup {
    std::size_t capacity;
    std::int64_t margin;
    int producers;
  };
  for (const Setup setup : {Setup{8, 2, 4}, Setup{8, 1, 16}, Setup{2, 1, 8}, Setup{64, 8, 4},
                            Setup{16, 15, 4}, Setup{8, -8, 4}, Setup{8, -100, 8}}) {
    CAPTURE(setup.capacity);
    CAPTURE(setup.producers);
    constexpr std::uint64_t kEach = 20'000;
    Ring ring({.capacity = setup.capacity, .margin = setup.margin, .start_position = kNearWrap});
    std::atomic<int> running{setup.producers};
    std::vector<std::uint64_t> accepted(static_cast<std::size_t>(setup.producers));
    std::vector<std::thread> threads;
    for (int id = 0; id < setup.producers; ++id) {
      threads.emplace_back([&, id] {
        for (std::uint64_t i = 1; i <= kEach; ++i) {
          Event event = alloc_of(i, 1);
          event.thread = static_cast<std::uint32_t>(id);
          event.extra = i * 31 + static_cast<std::uint64_t>(id);  // a torn slot would not match
          event.stream = ~event.extra;
          accepted[static_cast<std::size_t>(id)] += ring.push(event) ? 1 : 0;
        }
        running.fetch_sub(1);
      });
    }
    Loss lost;
    std::map<std::uint32_t, std::uint64_t> last;
    std::uint64_t delivered = 0;
    std::uint64_t wrong = 0;
    for (bool more = true; more;) {
      const bool finished = running.load() == 0;
      const auto events = pop_all(ring);
      for (const Event& event : events) {
        if (event.address <= last[event.thread]) ++wrong;
        if (event.extra != event.address * 31 + event.thread || event.stream != ~event.extra) {
          ++wrong;
        }
        last[event.thread] = event.address;
      }
      delivered += events.size();
      lost.add(ring.take_loss());
      more = !finished || !events.empty() || ring.unread() > 0;
      std::this_thread::yield();
    }
    for (auto& thread : threads) thread.join();
    lost.add(ring.take_loss());
    std::uint64_t total_accepted = 0;
    for (const auto count : accepted) total_accepted += count;
    CHECK(wrong == 0);
    CHECK(delivered == total_accepted);
    CHECK(delivered + lost.events == kEach * static_cast<std::uint64_t>(setup.producers));
    CHECK(lost.alloc_bytes == lost.events);
  }
}

TEST_CASE("with patience a push waits for room as long as that, and counts it") {
  Ring ring({.capacity = 8, .margin = 2, .start_position = kNearWrap});
  constexpr std::uint64_t kPatienceNs = 20'000'000;
  ring.set_patience(kPatienceNs);
  for (std::uint64_t i = 0; i < 6; ++i) REQUIRE(push_one(ring, alloc_of(i)));
  CHECK(ring.take_stalls().count == 0);

  // Nobody reads: the first push waits its time and is lost, the others do not wait again.
  const std::uint64_t begin_ns = monotonic_ns();
  CHECK_FALSE(push_one(ring, alloc_of(6)));
  const std::uint64_t waited_ns = monotonic_ns() - begin_ns;
  CHECK(waited_ns >= kPatienceNs);
  for (int i = 0; i < 1000; ++i) CHECK_FALSE(push_one(ring, alloc_of(7)));
  const Stalls stuck = ring.take_stalls();
  CHECK(stuck.count == 1);
  CHECK(stuck.total_ns >= kPatienceNs);
  CHECK(stuck.total_ns <= waited_ns);
  CHECK(stuck.longest_ns == stuck.total_ns);
  CHECK(ring.take_loss().events == 1001);
  CHECK(ring.take_stalls().count == 0);

  // Somebody has read: there is room, and when that is gone waiting makes sense again.
  CHECK(pop_all(ring).size() == 6);
  for (std::uint64_t i = 0; i < 6; ++i) REQUIRE(push_one(ring, alloc_of(i)));
  std::thread reader([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    Event event;
    ring.pop(&event, 1, ring.head());
  });
  ring.set_patience(10 * std::uint64_t{1'000'000'000});
  CHECK(push_one(ring, alloc_of(6)));
  reader.join();
  CHECK(ring.take_stalls().count == 1);
  CHECK_FALSE(ring.take_loss().any());
}

TEST_CASE("patient producers lose nothing to a slow reader") {
  Ring ring({.capacity = 64, .margin = 16, .start_position = kNearWrap});
  ring.set_patience(60 * std::uint64_t{1'000'000'000});
  constexpr std::uint64_t kEach = 2'000;
  std::vector<std::thread> threads;
  for (int id = 0; id < 4; ++id) {
    threads.emplace_back([&] {
      for (std::uint64_t i = 1; i <= kEach; ++i) push_one(ring, alloc_of(i));
    });
  }
  std::uint64_t delivered = 0;
  while (delivered < 4 * kEach) {
    delivered += pop_all(ring).size();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  for (auto& thread : threads) thread.join();
  CHECK_FALSE(ring.take_loss().any());
  CHECK(ring.take_stalls().count > 0);
}

TEST_CASE("threads get small numbers of their own") {
  const std::uint32_t mine = thread_index();
  CHECK(mine > 0);
  CHECK(thread_index() == mine);
  std::uint32_t other = 0;
  std::thread([&] { other = thread_index(); }).join();
  CHECK(other > mine);
}

}  // namespace gpumemtrace::capture
