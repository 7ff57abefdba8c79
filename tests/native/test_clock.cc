#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <thread>

#include "capture/clock.h"

namespace gpumemtrace::capture {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr std::uint64_t kStart = 77 * kSecond;  // of CLOCK_MONOTONIC, when the trace begins

// A machine whose counter and clock drift apart as told; nothing here is measured.
struct FakeMachine {
  double ticks = 1e12;
  double ns = static_cast<double>(kStart);
  double ticks_per_ns = 2.1;

  void pass(double ns_passed) {
    ns += ns_passed;
    ticks += ns_passed * ticks_per_ns;
  }
  ClockPair read() const {
    return {static_cast<std::uint64_t>(ticks), static_cast<std::uint64_t>(ns), 0};
  }
  double error_of(const Calibration& clock) const {
    return static_cast<double>(clock.to_ns(read().ticks)) - (ns - static_cast<double>(kStart));
  }
};

}  // namespace

TEST_CASE("ticks become ns since the beginning, also those from before the first update") {
  FakeMachine machine;
  Calibration clock(machine.read());
  const std::uint64_t begin_ticks = machine.read().ticks;
  machine.pass(5e6);
  clock.update(machine.read());
  CHECK(clock.origin_ns() == kStart);
  CHECK(std::abs(clock.to_ns(begin_ticks)) <= 1);
  CHECK(std::abs(clock.to_ns(begin_ticks + 2100) - 1000) <= 1);
  CHECK(std::abs(machine.error_of(clock)) <= 1);
  CHECK(clock.ns_per_tick() == doctest::Approx(1 / 2.1));
}

TEST_CASE("updates come at growing intervals, a second at most") {
  FakeMachine machine;
  Calibration clock(machine.read());
  CHECK(clock.update_due(machine.read().ns));
  int updates = 0;
  for (int ms = 0; ms < 10'000; ++ms) {
    machine.pass(1e6);
    if (!clock.update_due(machine.read().ns)) continue;
    clock.update(machine.read());
    ++updates;
  }
  CHECK(updates >= 15);
  CHECK(updates <= 20);
}

TEST_CASE("a clock that NTP bends is followed without a jump and without running backwards") {
  FakeMachine machine;
  Calibration clock(machine.read());
  std::int64_t last = -1;
  double worst_after_settling = 0;
  for (int step = 0; step < 60'000; ++step) {
    // 300 parts per million up at 20 s, and 500 down at 40 s: as much as the kernel ever slews.
    if (step == 20'000) machine.ticks_per_ns = 2.1 * (1 - 300e-6);
    if (step == 40'000) machine.ticks_per_ns = 2.1 * (1 + 500e-6);
    machine.pass(1e6);
    const std::int64_t before = clock.to_ns(machine.read().ticks);
    if (clock.update_due(machine.read().ns)) {
      clock.update(machine.read());
      if (step > 0) CHECK(std::abs(clock.to_ns(machine.read().ticks) - before) <= 1);
    }
    const std::int64_t now = clock.to_ns(machine.read().ticks);
    if (now <= last) FAIL("time stood still or ran back at step " << step);
    last = now;
    const double error = std::abs(machine.error_of(clock));
    if (error > 1e6) FAIL("off by " << error << " ns at step " << step);
    const bool settling = step % 20'000 < 4'000;
    if (!settling) worst_after_settling = std::fmax(worst_after_settling, error);
  }
  CHECK(worst_after_settling < 100);
}

TEST_CASE("a machine that was suspended is set right at once") {
  FakeMachine machine;
  Calibration clock(machine.read());
  for (int i = 0; i < 5; ++i) {
    machine.pass(1e9);
    clock.update(machine.read());
  }
  machine.ticks += 2.1 * 3600e9;  // the counter went on for an hour, the clock did not
  machine.pass(1e6);
  clock.update(machine.read());
  CHECK(std::abs(machine.error_of(clock)) <= 1);
  machine.pass(1e9);
  CHECK(std::abs(machine.error_of(clock)) <= 10);  // and the rate is still the old one
}

TEST_CASE("a reading that does not advance is ignored") {
  FakeMachine machine;
  Calibration clock(machine.read());
  machine.pass(1e6);
  clock.update(machine.read());
  const std::int64_t before = clock.to_ns(machine.read().ticks + 1000);
  clock.update(machine.read());
  CHECK(clock.to_ns(machine.read().ticks + 1000) == before);
}

TEST_CASE("this machine's clock is followed within a few microseconds") {
  Calibration clock(read_clock_pair());
  std::int64_t last = -1;
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  for (int i = 0; i < 300; ++i) {
    if (clock.update_due(monotonic_ns())) clock.update(read_clock_pair());
    const ClockPair now = read_clock_pair();
    const std::int64_t converted = clock.to_ns(now.ticks);
    CHECK(converted > last);
    last = converted;
    const auto wanted = static_cast<std::int64_t>(now.ns - clock.origin_ns());
    const double unsure = static_cast<double>(now.uncertainty_ticks) * clock.ns_per_tick();
    // Each of the readings behind this may have lost its core for a moment.
    CHECK(std::abs(static_cast<double>(converted - wanted)) < 5'000 + 2 * unsure);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace gpumemtrace::capture
