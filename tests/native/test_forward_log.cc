#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <map>
#include <random>
#include <thread>

#include "capture/forward_log.h"

namespace gpumemtrace::capture {

TEST_CASE("a node belongs to the site that claimed it") {
  ForwardLog log;
  CHECK(log.find(0) == 0);
  log.claim(7, 0);
  log.claim(10, 1);
  log.claim(11, 2);
  log.claim(11, 3);  // made none
  log.claim(12, 1);
  CHECK(log.find(6) == 0);
  CHECK(log.find(7) == 1);
  CHECK(log.find(9) == 1);
  CHECK(log.find(10) == 2);
  CHECK(log.find(11) == 1);
  CHECK(log.find(12) == 0);  // not claimed yet
  log.claim(20, 1);          // the same site goes on
  CHECK(log.find(19) == 1);
  log.clear();
  CHECK(log.find(7) == 0);
}

TEST_CASE("nodes that nobody saw being made are nobody's") {
  ForwardLog log;
  log.claim(5, 1);
  log.skip_to(9);
  log.claim(12, 2);
  CHECK(log.find(4) == 1);
  CHECK(log.find(5) == 0);
  CHECK(log.find(8) == 0);
  CHECK(log.find(9) == 2);
}

TEST_CASE("as a map says, for as many changes as are kept; older ones are not known") {
  std::mt19937 random(1);
  ForwardLog log;
  std::map<std::uint64_t, std::uint32_t> sites;  // by first node
  std::uint64_t next = 0;
  std::uint64_t changes = 0;
  std::uint32_t last = UINT32_MAX;
  const std::uint64_t kept_from_change = 3 * ForwardLog::kCapacity - (ForwardLog::kCapacity - 1);
  std::uint64_t kept_from_node = 0;
  while (changes < 3 * ForwardLog::kCapacity) {
    const auto site = static_cast<std::uint32_t>(random() % 5);
    const std::uint64_t end = next + random() % 4;
    if (end != next && site != last) {
      if (changes++ == kept_from_change) kept_from_node = next;
      last = site;
    }
    if (end != next) sites[next] = site;
    log.claim(end, site);
    next = end;
  }
  const auto truth = [&](std::uint64_t node) { return std::prev(sites.upper_bound(node))->second; };
  for (std::uint64_t node = kept_from_node; node < next; ++node) {
    REQUIRE(log.find(node) == truth(node));
  }
  for (std::uint64_t node = 0; node < kept_from_node; ++node) REQUIRE(log.find(node) == 0);
}

TEST_CASE("read while it is written: right, or not known") {
  ForwardLog log;
  std::atomic<std::uint64_t> made{0};
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (std::uint64_t node = 0; node < 20 * ForwardLog::kCapacity; ++node) {
      log.claim(node + 1, static_cast<std::uint32_t>(node % 1000 + 1));
      made.store(node + 1, std::memory_order_release);
    }
    stop = true;
  });
  std::uint64_t wrong = 0, right = 0;
  std::mt19937_64 random(2);
  while (!stop || right == 0) {
    const std::uint64_t now = made.load(std::memory_order_acquire);
    if (now == 0) continue;
    const std::uint64_t node = now - 1 - random() % std::min(now, ForwardLog::kCapacity);
    const std::uint32_t site = log.find(node);
    if (site == node % 1000 + 1) ++right;
    if (site != 0 && site != node % 1000 + 1) ++wrong;
  }
  writer.join();
  CHECK(wrong == 0);
  CHECK(right > 0);
}

}  // namespace gpumemtrace::capture
