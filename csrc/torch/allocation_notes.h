// What is noted on the way of one allocation, for its end. Per thread: an allocation begins, misses
// the cache and ends in the same thread.
#pragma once

#include <cstdint>

#include "torch/totals.h"

namespace gpumemtrace::hook {

struct InFlightSlot;

struct AllocationNotes {
  bool any = false;             // the one that every allocation looks at
  bool missed = false;          // no cached block fitted (see miss_callback.cc)
  bool unsure = false;          // of the segments when it began (see segment_knowledge.h)
  bool has_before = false;      // `before` holds the totals from before the allocation
  std::uint64_t missed_ns = 0;  // CLOCK_MONOTONIC, when the search of the cache had failed
  Totals before;
  InFlightSlot* slot = nullptr;  // stays (see in_flight.h)

  void clear() noexcept { any = missed = unsure = has_before = false; }
};

// initial-exec: one load instead of a call in every allocation; 80 bytes of static TLS.
extern __attribute__((tls_model("initial-exec"))) constinit thread_local AllocationNotes t_notes;

}  // namespace gpumemtrace::hook
