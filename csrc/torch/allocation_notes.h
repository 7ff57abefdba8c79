// What is noted on the way of one allocation, for its end. Per thread: an allocation begins, misses
// the cache and ends in the same thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "torch/totals.h"

namespace gpumemtrace::hook {

struct InFlightSlot;
struct StreamRange;

// Threads that have notes and ranges of their own at one time (in_flight.h, block_streams.h).
inline constexpr std::size_t kInFlightSlots = 64;

struct AllocationNotes {
  bool any = false;         // the one that every allocation looks at
  bool missed = false;      // no cached block fitted (see miss_callback.cc)
  bool unsure = false;      // of the segments when it began (see segment_knowledge.h)
  bool has_before = false;  // `before` holds the totals from before the allocation
  // Allocations begun since `any` was set, inside of the one that it is about: by somebody's callback
  // or by a pool's own allocator.
  std::uint16_t inner = 0;
  std::uint16_t changes = 0;    // of the segments, begun by misses and not ended (block_streams.h)
  std::uint64_t missed_ns = 0;  // CLOCK_MONOTONIC, when the search of the cache had failed
  Totals before;
  InFlightSlot* slot = nullptr;    // stays (see in_flight.h)
  StreamRange* streams = nullptr;  // stays; set with `slot` (see block_streams.h)

  // An allocation is over, whichever way.
  void settle() noexcept {
    if (any) [[unlikely]]
      settle_some();
  }
  void settle_some() noexcept;
};

// initial-exec: one load instead of a call in every allocation; 96 bytes of static TLS.
extern __attribute__((tls_model("initial-exec"))) constinit thread_local AllocationNotes t_notes;

}  // namespace gpumemtrace::hook
