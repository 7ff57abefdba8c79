// The ring between the threads that record and the one thread that drains: bounded, many
// producers, one consumer, no lock.
//
//        tail                          head
//          |  unread, in order of       |
//          v  reservation               v
//   +------+------+------+------+------+------+------+------+
//   | e, 5 | e, 6 | e, 7 | ?    | e, 9 |      |      |      |      slot = event + publication word
//   +------+------+------+------+------+------+------+------+
//                          reserved, not yet published: the consumer waits here
//
// Positions count up for ever (64 bits, wrapping); position p lives in slot p & mask. A producer
//   1. looks whether there is room; if not, the event is dropped (the newest goes) and counted. With
//      patience it first waits for room, no longer than that, and not again before somebody reads;
//   2. reserves a position with one fetch_add: from here on the total order is fixed;
//   3. writes the event and publishes the slot by storing position + 1 in its publication word.
// The consumer reads published slots in order and moves tail past them. Producers without patience
// never wait, for each other or for the consumer; they wake nobody.
//
// Between 1 and 2 other producers may reserve too, so step 1 leaves a margin: as many slots as
// threads may stand there at one time. More threads than that still overwrite nothing: whoever
// finds its position to lie a whole lap ahead of tail abandons it, leaves its position in a side
// table for the consumer to step over, and counts its event as dropped.
//
// Lines are laid out by who writes them. Each atomic below names its partner.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "capture/clock.h"
#include "trace/event.h"
#include "trace/export.h"

namespace gpumemtrace::capture {

// Two cache lines: the CPU's neighbour prefetch fetches them in pairs.
inline constexpr std::size_t kLineBytes = 128;

// A slot's line was last read by the consumer, on another core. Asked for this many pushes ahead it
// is ours when its turn comes; else the next fetch_add waits for it (36 ns a push instead of 29).
inline constexpr std::uint64_t kPrefetchAhead = 16;

inline void prefetch_for_write(const void* address) noexcept {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(address)));
#else
  __builtin_prefetch(address, 1);
#endif
}

struct alignas(64) Slot {
  Event event;
  // position + 1 once the event may be read. release (publish) -> acquire (consume).
  std::atomic<std::uint64_t> published;
};
static_assert(sizeof(Slot) == 64);

// Field by field: copied as a whole, an event whose fields have just been set goes by way of the
// stack, and wide loads there wait for the narrow stores to reach the cache.
inline void write_fields(Event& slot, const Event& event) noexcept {
  slot.time = event.time;
  slot.address = event.address;
  slot.size = event.size;
  slot.stream = event.stream;
  slot.extra = event.extra;
  slot.thread = event.thread;
  slot.site = event.site;
  slot.flags = event.flags;
  slot.device = event.device;
  slot.kind = event.kind;
}

struct RingOptions {
  std::size_t capacity = std::size_t{1} << 17;  // slots; a power of two >= 2
  // Slots kept free; none = chosen by capacity. Below zero so many pushes go on past a full ring, as
  // they would if so many threads had raced (tests).
  std::optional<std::int64_t> margin = std::nullopt;
  std::uint64_t start_position = 0;  // tests start just before the counter wraps
  // Where slots and extras lie: Ring::memory_bytes(capacity) zeroed bytes, aligned to a page, which
  // outlive the ring. nullptr: memory of its own.
  void* memory = nullptr;
};

// What was lost between two readable events.
struct Loss {
  std::uint64_t events = 0;
  std::uint64_t alloc_bytes = 0;  // requested by the lost kAlloc events
  std::uint64_t frees = 0;
  std::uint64_t first_ticks = 0;
  std::uint64_t last_ticks = 0;

  bool any() const noexcept { return (events | alloc_bytes | frees) != 0; }
  void add(const Loss& later) noexcept;
};

// Of a loss that lasted so long, by the clock of the trace; all but its time.
GPUMEMTRACE_API Event gap_event(const Loss& loss, std::int64_t lasted_ns) noexcept;

// Pushes that waited for room, whether or not there was some in the end.
struct Stalls {
  std::uint64_t count = 0;
  std::uint64_t total_ns = 0;
  std::uint64_t longest_ns = 0;

  void add(const Stalls& later) noexcept;
};

// What producers leave beside the slots, in the same memory: whoever finds that memory when the
// process is gone needs both.
struct RingExtras {
  static constexpr std::size_t kAbandonedSlots = 1024;

  // Losers' line. lost_events: release (count_loss) -> acquire (take_loss), carries the others.
  alignas(kLineBytes) std::atomic<std::uint64_t> lost_events;
  std::atomic<std::uint64_t> lost_alloc_bytes;
  std::atomic<std::uint64_t> lost_frees;
  std::atomic<std::uint64_t> first_loss_ticks;
  std::atomic<std::uint64_t> last_loss_ticks;
  // Positions to step over; entry p % size holds abandoned_key(p), 0 = empty. relaxed: an entry says
  // nothing of any other memory.
  alignas(kLineBytes) std::array<std::atomic<std::uint64_t>, kAbandonedSlots> abandoned;
};

class Ring {
 public:
  // Touches all of its memory, so that no push meets a page fault. Memory of its own is given to the
  // child of a fork as zeroed pages instead of being shared, so the parent's pushes stay free of
  // copy-on-write faults. Throws std::bad_alloc. A ring is never destroyed in the product: a thread
  // may hold a pointer to it for as long as it likes.
  GPUMEMTRACE_API explicit Ring(const RingOptions& options);
  GPUMEMTRACE_API ~Ring();
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  // --- producers: any thread, any number, also in a signal handler ---

  // Stamps event.time and stores the event. False: the ring was full, the event is counted as lost.
  bool push(Event& event) noexcept;

  // A device (by event.device) whose events were dropped wants its totals told anew.
  // A hint: that it comes late costs one more stats event. release (clear_resync) -> acquire
  // (resync_wanted): whoever sees no wish any more also sees what its fulfiller noted before.
  bool resync_wanted(std::int16_t device) const noexcept {
    return (resync_.load(std::memory_order_acquire) & device_bit(device)) != 0;
  }
  void clear_resync(std::int16_t device) noexcept {
    resync_.fetch_and(~device_bit(device), std::memory_order_release);
  }

  // How long a push may wait for room: 0, as it is at first, means not at all. While nobody pushes.
  void set_patience(std::uint64_t ns) noexcept {
    patience_ns_.store(ns, std::memory_order_relaxed);
  }

  // --- the consumer: one thread at a time ---

  // Copies up to `most` events that come before position `end`, in order; returns how many. Stops
  // early at the first slot that is not published. `next`: the position where it stopped. Slots stay
  // taken until release(next).
  std::size_t read(Event* out, std::size_t most, std::uint64_t end, std::uint64_t& next) noexcept;
  void release(std::uint64_t next) noexcept { tail_.store(next, std::memory_order_release); }

  // Both at once.
  std::size_t pop(Event* out, std::size_t most, std::uint64_t end) noexcept {
    std::uint64_t next = 0;
    const std::size_t count = read(out, most, end, next);
    release(next);
    return count;
  }

  // Takes what has been counted as lost since the last call. Events are never taken without their
  // bytes and frees; those of an event being counted right now may come one call early.
  GPUMEMTRACE_API Loss take_loss() noexcept;

  // Takes the stalls since the last call.
  GPUMEMTRACE_API Stalls take_stalls() noexcept;

  // A snapshot; what lies before it is reserved, perhaps not yet published.
  std::uint64_t head() const noexcept { return head_.load(std::memory_order_relaxed); }
  std::uint64_t tail() const noexcept { return tail_.load(std::memory_order_relaxed); }
  std::uint64_t unread() const noexcept { return head() - tail(); }

  std::size_t capacity() const noexcept { return static_cast<std::size_t>(mask_) + 1; }
  // Pushes are refused from this many unread events on.
  std::uint64_t limit() const noexcept { return limit_; }

  static constexpr std::size_t memory_bytes(std::size_t capacity) noexcept {
    return capacity * sizeof(Slot) + sizeof(RingExtras);
  }

 private:
  static constexpr std::size_t kAbandonedSlots = RingExtras::kAbandonedSlots;

  static std::uint64_t device_bit(std::int16_t device) noexcept {
    return std::uint64_t{1} << (static_cast<unsigned>(device) & 63U);
  }
  static std::uint64_t abandoned_key(std::uint64_t position) noexcept {
    return (position << 1) | 1;
  }

  // The rare paths, out of line so that push stays small.
  GPUMEMTRACE_API bool refresh_finds_room() noexcept;
  GPUMEMTRACE_API bool waiting_finds_room() noexcept;
  GPUMEMTRACE_API bool position_is_free(std::uint64_t position) noexcept;
  GPUMEMTRACE_API void abandon(std::uint64_t position) noexcept;
  GPUMEMTRACE_API void count_loss(Kind kind, std::uint64_t size, std::int16_t device) noexcept;

  // Producers' line; what never changes stands here too, so that a push needs no other. The
  // consumer does not read this line unless something was lost: it finds events by their slots.
  //
  // fetch_add relaxed: only hands out numbers. What a position holds is ordered by `published`.
  alignas(kLineBytes) std::atomic<std::uint64_t> head_;
  // A recent tail, so that a push need not touch the consumer's line. release (refresh) -> acquire
  // (push); together with tail_ it carries "the consumer has read that slot" to the next writer.
  std::atomic<std::uint64_t> seen_tail_;
  std::atomic<std::uint64_t> resync_{0};
  Slot* slots_ = nullptr;
  std::uint64_t mask_ = 0;
  std::uint64_t limit_ = 0;
  bool use_counter_ = g_counter_is_usable;

  // Consumer's line. release (release) -> acquire (refresh_finds_room, position_is_free).
  alignas(kLineBytes) std::atomic<std::uint64_t> tail_;

  // Those who wait for room. All relaxed: they are figures. vain_tail_: a tail at which waiting was
  // in vain, + 1; 0 = none.
  alignas(kLineBytes) std::atomic<std::uint64_t> patience_ns_{0};
  std::atomic<std::uint64_t> vain_tail_{0};
  std::atomic<std::uint64_t> stalls_{0};
  std::atomic<std::uint64_t> stalled_ns_{0};
  std::atomic<std::uint64_t> longest_stall_ns_{0};
  RingExtras* extras_ = nullptr;
  std::size_t mapped_bytes_ = 0;
};

// Differences of positions are signed: a thread may hold an old head beside a newer tail.
inline bool Ring::push(Event& event) noexcept {
  const std::uint64_t seen_tail = seen_tail_.load(std::memory_order_acquire);
  const std::uint64_t head = head_.load(std::memory_order_relaxed);
  if (static_cast<std::int64_t>(head - seen_tail) >= static_cast<std::int64_t>(limit_))
      [[unlikely]] {
    if (!refresh_finds_room() && !waiting_finds_room()) {
      count_loss(event.kind, event.size, event.device);
      return false;
    }
  }
  // Before the reservation: a thread that loses its core in between then has a time that is too
  // early, never one that later positions would have to catch up with.
  event.time = use_counter_ ? read_counter() : monotonic_ns();
  const std::uint64_t position = head_.fetch_add(1, std::memory_order_relaxed);
  if (static_cast<std::int64_t>(position - seen_tail) > static_cast<std::int64_t>(mask_))
      [[unlikely]] {
    if (!position_is_free(position)) {
      abandon(position);
      count_loss(event.kind, event.size, event.device);
      return false;
    }
  }
  Slot& slot = slots_[position & mask_];
  prefetch_for_write(&slots_[(position + kPrefetchAhead) & mask_]);
  write_fields(slot.event, event);
  slot.published.store(position + 1, std::memory_order_release);
  return true;
}

inline std::size_t Ring::read(Event* out, std::size_t most, std::uint64_t end,
                              std::uint64_t& next) noexcept {
  std::uint64_t position = tail_.load(std::memory_order_relaxed);
  std::size_t count = 0;
  while (position != end && count < most) {
    const Slot& slot = slots_[position & mask_];
    if (slot.published.load(std::memory_order_acquire) == position + 1) {
      out[count++] = slot.event;
    } else {
      auto& entry = extras_->abandoned[position % kAbandonedSlots];
      if (entry.load(std::memory_order_relaxed) != abandoned_key(position)) break;
      entry.store(0, std::memory_order_relaxed);
    }
    ++position;
  }
  next = position;
  return count;
}

}  // namespace gpumemtrace::capture
