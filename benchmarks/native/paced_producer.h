// Events at a fixed rate, as a training loop makes them.
#pragma once

#include <atomic>
#include <cstdint>

#include "capture/clock.h"
#include "capture/producer.h"

namespace gpumemtrace::capture {

// A training step in small: 200 sizes allocated, used, freed in reverse, the same each time.
inline Event nth_event(std::uint64_t lane, std::uint64_t count) noexcept {
  constexpr std::uint64_t kBlocks = 200;
  const std::uint64_t at = count % (2 * kBlocks);
  const std::uint64_t block = at < kBlocks ? at : 2 * kBlocks - 1 - at;
  Event event{};
  event.kind = at < kBlocks ? Kind::kAlloc : Kind::kFree;
  event.address = 0x7F00'0000'0000 + (lane << 36) + block * 0x20'0000;
  event.size = at < kBlocks ? 512 + block * 4096 : 0;
  return event;
}

// Pushes them into the active ring; adds to `made` how many, to `refused` those that had no room.
inline void produce(std::uint64_t lane, double per_second, double seconds,
                    std::atomic<std::uint64_t>& made, std::atomic<std::uint64_t>& refused) {
  constexpr int kSlice = 100;  // events between looks at the clock
  Ring* ring = active_ring();
  const std::uint64_t begin = monotonic_ns();
  std::uint64_t count = 0;
  std::uint64_t lost = 0;
  const auto total = static_cast<std::uint64_t>(per_second * seconds);
  while (count < total) {
    for (int i = 0; i < kSlice; ++i, ++count) {
      Event event = nth_event(lane, count);
      lost += push(ring, event) ? 0 : 1;
    }
    const auto due = static_cast<std::uint64_t>(static_cast<double>(count) / per_second * 1e9);
    while (monotonic_ns() - begin < due) {
    }
  }
  made += count;
  refused += lost;
}

}  // namespace gpumemtrace::capture
