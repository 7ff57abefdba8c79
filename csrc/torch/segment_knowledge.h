// Whether the reader of a trace can tell how large a block is that is not the request rounded up.
//
// torch leaves up to 1 MiB of a free block of its large pool unsplit. A reader that was told of every
// segment, and has seen every block come and go, knows the free block to the byte
// (compute/large_segments.h): then the hook need not read the allocator's counters for it, which
// costs a lock and more than all the rest of an event. This is about one session's trace, and
// "known" is left for good where anything happens that the reader isn't told of.
#pragma once

#include <atomic>
#include <cstdint>

#include "capture/producer.h"

namespace gpumemtrace::hook {

class SegmentKnowledge {
 public:
  enum State : std::uint64_t {
    kNotKnown = 0,
    kNothingYet = 1,  // no memory has been taken from the driver
    kFixed = 2,       // every segment was told, none is expandable
    kExpandable = 3,  // every segment is expandable: split to the last 512 bytes
  };

  // In this session, from now on.
  void begin(State state) noexcept {
    state_.store(session_bits() | state, std::memory_order_relaxed);
  }

  void give_up() noexcept { begin(kNotKnown); }

  // Whether all segments are of this kind, which is the one that torch would make now.
  bool agrees(State kind) noexcept {
    std::uint64_t before = state_.load(std::memory_order_relaxed);
    if (before == (session_bits() | kind)) [[likely]]
      return true;
    if (before == (session_bits() | kNothingYet)) {
      return state_.compare_exchange_strong(before, session_bits() | kind,
                                            std::memory_order_relaxed) ||
             before == (session_bits() | kind);
    }
    give_up();  // settings have changed under way
    return false;
  }

 private:
  static std::uint64_t session_bits() noexcept {
    return capture::g_session_number.load(std::memory_order_relaxed) << 2;
  }

  // The session that it is about, and a State. relaxed: says nothing of any other memory; a thread
  // that sees it late was in flight with the one that changed it, and so reads the counters.
  std::atomic<std::uint64_t> state_{kNotKnown};
};

}  // namespace gpumemtrace::hook
