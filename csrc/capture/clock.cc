#include "capture/clock.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace gpumemtrace::capture {
namespace {

constexpr std::uint64_t kLongestIntervalNs = 1'000'000'000;
// Beyond this the machine was suspended or moved to another host: the counter and the clock no
// longer tell the same story, and slewing would take hours.
constexpr double kJumpNs = 1e6;

#if defined(__x86_64__)
// A hypervisor may hide the CPU's promise although the kernel itself keeps time by the counter.
bool kernel_keeps_time_by_tsc() noexcept {
  const int file = open("/sys/devices/system/clocksource/clocksource0/current_clocksource",
                        O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  char name[16] = {};
  const ssize_t length = read(file, name, sizeof name - 1);
  close(file);
  return length > 0 && std::string_view(name).substr(0, 3) == "tsc";
}

bool counter_is_usable() noexcept {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  constexpr unsigned kPowerManagementLeaf = 0x80000007;  // EDX bit 8: invariant TSC
  if (__get_cpuid(kPowerManagementLeaf, &eax, &ebx, &ecx, &edx) != 0 && (edx & (1U << 8)) != 0) {
    return true;
  }
  return kernel_keeps_time_by_tsc();
}
#elif defined(__aarch64__)
bool counter_is_usable() noexcept { return true; }  // the architecture promises it
#else
bool counter_is_usable() noexcept { return false; }
#endif

}  // namespace

const bool g_counter_is_usable = counter_is_usable();

std::uint64_t monotonic_ns() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(now.tv_nsec);
}

ClockPair read_clock_pair() noexcept {
  ClockPair best;
  best.uncertainty_ticks = UINT64_MAX;
  for (int attempt = 0; attempt < 8; ++attempt) {
    const std::uint64_t before = ticks();
    const std::uint64_t ns = monotonic_ns();
    const std::uint64_t width = ticks() - before;
    if (width < best.uncertainty_ticks) best = {before + width / 2, ns, width};
  }
  return best;
}

Calibration::Calibration(const ClockPair& begin) noexcept
    : origin_ns_(begin.ns), anchor_ticks_(begin.ticks), last_(begin), next_update_ns_(0) {}

void Calibration::schedule(std::uint64_t now_ns) noexcept {
  next_update_ns_ = now_ns + interval_ns_;
  interval_ns_ = std::min(interval_ns_ * 2, kLongestIntervalNs);
}

void Calibration::update(const ClockPair& now) noexcept {
  const auto ticks_passed = static_cast<double>(now.ticks - last_.ticks);
  const auto ns_passed = static_cast<double>(now.ns - last_.ns);
  if (!(ticks_passed > 0.0) || !(ns_passed > 0.0)) return;

  const double rate = ns_passed / ticks_passed;
  if (!measured_) {
    // The first piece runs exactly from the beginning to here.
    measured_ = true;
    rate_ = ns_per_tick_ = rate;
  }
  const std::int64_t predicted = to_ns(now.ticks);
  const auto actual = static_cast<std::int64_t>(now.ns - origin_ns_);
  const auto error = static_cast<double>(actual - predicted);
  last_ = now;
  anchor_ticks_ = now.ticks;
  schedule(now.ns);
  if (std::abs(error) > kJumpNs) {
    anchor_ns_ = actual;
    ns_per_tick_ = rate_;  // the rate across a jump means nothing
    return;
  }
  rate_ = rate;
  anchor_ns_ = predicted;
  // Meet the true time when the next update is due; never run backwards or at a silly speed.
  const auto until_next = static_cast<double>(next_update_ns_ - now.ns);
  ns_per_tick_ = rate_ * std::clamp(1.0 + error / until_next, 0.9, 1.1);
}

}  // namespace gpumemtrace::capture
