// Time: raw ticks for whoever records, nanoseconds since the trace began for whoever reads.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "trace/export.h"

namespace gpumemtrace::capture {

// False where the CPU's counter may stop, change its rate or differ between cores: ticks are
// nanoseconds of CLOCK_MONOTONIC then. Set once when the library is loaded.
extern GPUMEMTRACE_API const bool g_counter_is_usable;

// Nanoseconds of CLOCK_MONOTONIC. Out of line: on the hot path it is the way not taken.
GPUMEMTRACE_API std::uint64_t monotonic_ns() noexcept;

// Meaningless unless g_counter_is_usable.
inline std::uint64_t read_counter() noexcept {
#if defined(__x86_64__)
  return __rdtsc();
#elif defined(__aarch64__)
  std::uint64_t value;
  asm volatile("mrs %0, cntvct_el0" : "=r"(value));
  return value;
#else
  return 0;
#endif
}

// The clock of every event. Any thread, a signal handler included; not serialising.
inline std::uint64_t ticks() noexcept {
  return g_counter_is_usable ? read_counter() : monotonic_ns();
}

// The same instant on both clocks, to within uncertainty_ticks.
struct ClockPair {
  std::uint64_t ticks = 0;
  std::uint64_t ns = 0;
  std::uint64_t uncertainty_ticks = 0;
};

// The tightest of a few tries, since the thread may lose its core between the two readings.
GPUMEMTRACE_API ClockPair read_clock_pair() noexcept;

// Turns ticks into ns since `origin_ns`, following CLOCK_MONOTONIC (which NTP speeds up and slows
// down) without a jump: each update starts a new straight piece where the last one ended, with the
// slope that meets the true time one interval later. Owned by one thread.
class Calibration {
 public:
  // to_ns() means something from the first update() on: it takes two readings to know the rate.
  explicit Calibration(const ClockPair& begin) noexcept;

  // Takes a new reading into account. Cheap; call it at least every few seconds.
  void update(const ClockPair& now) noexcept;

  // Due at growing intervals: 5 ms after the start, then 10, 20, ... and every second at last.
  bool update_due(std::uint64_t now_ns) const noexcept { return now_ns >= next_update_ns_; }

  // Ticks from before the last update are served by the current piece, extended backwards.
  std::int64_t to_ns(std::uint64_t at_ticks) const noexcept {
    const auto since = static_cast<std::int64_t>(at_ticks - anchor_ticks_);
    return anchor_ns_ + static_cast<std::int64_t>(static_cast<double>(since) * ns_per_tick_);
  }

  // The current piece, for whoever goes on without us. ns_per_tick 0 = no rate measured yet.
  struct Piece {
    std::uint64_t anchor_ticks;
    std::int64_t anchor_ns;
    double ns_per_tick;
  };
  Piece piece() const noexcept {
    return {anchor_ticks_, anchor_ns_, measured_ ? ns_per_tick_ : 0.0};
  }

  // CLOCK_MONOTONIC at trace time 0.
  std::uint64_t origin_ns() const noexcept { return origin_ns_; }
  double ns_per_tick() const noexcept { return rate_; }

 private:
  void schedule(std::uint64_t now_ns) noexcept;

  std::uint64_t origin_ns_;
  std::uint64_t anchor_ticks_;  // the current piece: where it begins,
  std::int64_t anchor_ns_ = 0;
  double ns_per_tick_ = 1.0;  // and its slope
  double rate_ = 1.0;         // the counter's true rate, as last measured
  bool measured_ = false;
  ClockPair last_;
  std::uint64_t next_update_ns_;
  std::uint64_t interval_ns_ = 5'000'000;
};

}  // namespace gpumemtrace::capture
