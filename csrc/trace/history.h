// What codec 2 remembers: the latest events, to which the next ones are compared. Encoder and
// decoder each keep one and feed it the same, so that it is equal in both.
//
// Beside its fields an event has
//   address reference   how many events ago this address was told: a free's points at its alloc, an
//                       alloc's at the free that gave the block back; 0 = not said so
//   size reference      the same for its size
//   allocated           an estimate of the allocator's bytes right after it
//   guess               of the time gap before it (time_guess.h)
// References carry the structure of a step over to the next one where addresses and sizes differ.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "trace/event.h"
#include "trace/time_guess.h"

namespace gpumemtrace {

// Events are numbered from 0 since the last reset.
class History {
 public:
  static constexpr std::uint64_t kCapacity = std::uint64_t{1} << 16;

  // An event and what is known of it: a cache line, since whoever looks at one field of it mostly
  // looks at all.
  struct alignas(64) Entry {
    Event event;  // in place of its time: the estimate of `allocated`
    std::uint32_t address_reference;
    std::uint32_t size_reference;
  };
  static_assert(sizeof(Entry) == 64);

  History();
  void reset() noexcept;

  // How many events there have been.
  std::uint64_t size() const noexcept { return size_; }
  // Whether the event `distance` before the next one is still known.
  bool reaches(std::uint64_t distance) const noexcept {
    return distance - 1 < size_ && distance < kCapacity;
  }

  // Of an event in reach, by its number.
  const Entry& entry(std::uint64_t number) const noexcept { return entries_[slot(number)]; }
  const Event& event(std::uint64_t number) const noexcept { return entry(number).event; }
  TimeGuess guess(std::uint64_t number) const noexcept { return guesses_[slot(number)]; }
  bool equals(std::uint64_t number, const Event& other) const noexcept {
    return is_same(event(number), other);
  }
  // In all fields but their times.
  static bool is_same(const Event& a, const Event& b) noexcept;

  // What the next event is if it plays the part of the event `number`. `extra` is not yet foreseen:
  // that takes the size, see foreseen_extra().
  Entry follow(std::uint64_t number) const noexcept;
  // What `extra` is then, or (second) what it lies close to when it isn't.
  std::uint64_t foreseen_extra(const Event& event) const noexcept {
    return event.kind == Kind::kAlloc && event.extra != 0 ? near_extra(event) : event.extra;
  }
  std::uint64_t near_extra(const Event& event) const noexcept {
    return event.kind == Kind::kAlloc ? allocated_ + rounded(event.size) : event.extra;
  }

  // The last event of this kind (modulo 64) that was told with all its fields.
  const Event& last_told(Kind kind) const noexcept { return told_[index_of(kind)]; }
  void tell(const Event& event) noexcept { told_[index_of(event.kind)] = event; }

  // Asks for what follow() will look at when so many more events are there.
  void prefetch_referred(std::uint64_t number, std::uint64_t events_later) const noexcept {
    if (number >= size_) return;
    const Entry& then = entry(number);
    __builtin_prefetch(&entry(size_ + events_later - then.address_reference));
    __builtin_prefetch(&entry(size_ + events_later - then.size_reference));
  }

  // Takes in the next event, with the references of `entry`.
  void append(const Event& event, const Entry& entry, TimeGuess guess) noexcept;

  // How many of the events are copies of those from the event `number` on, at most `most`; it may be
  // more, as it stops at the last event.
  std::size_t count_copies(std::uint64_t number, const Event* events,
                           std::size_t most) const noexcept;
  // Takes in copies of `count` events from `number` on, which is in reach: of each event in turn.
  // `take(event, guess)` makes of its guess that of its copy. Copies may be copied again: `count` may
  // reach beyond the last event.
  template <class Take>
  void append_copies(std::uint64_t number, std::uint64_t count, Take take);

 private:
  static constexpr std::size_t slot(std::uint64_t number) noexcept {
    return static_cast<std::size_t>(number & (kCapacity - 1));
  }
  static constexpr std::size_t index_of(Kind kind) noexcept {
    return static_cast<std::uint16_t>(kind) % 64;
  }
  // The caching allocator's blocks are multiples of 512 bytes.
  static constexpr std::uint64_t rounded(std::uint64_t size_bytes) noexcept {
    return (size_bytes + 511) / 512 * 512;
  }
  std::uint64_t size_ = 0;
  std::uint64_t allocated_ = 0;  // after the last event
  std::array<Event, 64> told_ = {};
  // Not filled with anything: what was not written is out of reach.
  std::unique_ptr<Entry[]> entries_;
  std::unique_ptr<TimeGuess[]> guesses_;
};

inline bool History::is_same(const Event& a, const Event& b) noexcept {
  static_assert(offsetof(Event, extra) + 24 == sizeof(Event));  // no padding
  const auto pair_at = [](const void* fields) {
    std::uint64_t pair;
    std::memcpy(&pair, fields, sizeof pair);
    return pair;
  };
  return ((a.address ^ b.address) | (a.size ^ b.size) | (a.stream ^ b.stream) |
          (a.extra ^ b.extra) | (pair_at(&a.thread) ^ pair_at(&b.thread)) |
          (pair_at(&a.flags) ^ pair_at(&b.flags))) == 0;
}

inline History::Entry History::follow(std::uint64_t number) const noexcept {
  const Entry& old = entry(number);
  const Event& then = old.event;
  // What is referred to is in reach of the event that refers, hence, as many events on, of the next
  // one; only a reference of 0 means the event itself.
  const std::uint64_t address_of =
      old.address_reference != 0 ? size_ - old.address_reference : number;
  const std::uint64_t size_of = old.size_reference != 0 ? size_ - old.size_reference : number;
  return {{0, event(address_of).address, event(size_of).size, then.stream, then.extra, then.thread,
           then.site, then.flags, then.device, then.kind},
          old.address_reference,
          old.size_reference};
}

inline void History::append(const Event& event, const Entry& entry, TimeGuess guess) noexcept {
  if (event.kind == Kind::kAlloc) {
    allocated_ = event.extra != 0 ? event.extra : allocated_ + rounded(event.size);
  } else if (event.kind == Kind::kFree && entry.address_reference != 0) {
    allocated_ -= rounded(this->event(size_ - entry.address_reference).size);
  }
  const std::size_t at = slot(size_++);
  Entry& next = entries_[at];
  next.event = {allocated_,   event.address, event.size,  event.stream, event.extra,
                event.thread, event.site,    event.flags, event.device, event.kind};
  next.address_reference = entry.address_reference;
  next.size_reference = entry.size_reference;
  guesses_[at] = guess;
}

inline std::size_t History::count_copies(std::uint64_t number, const Event* events,
                                         std::size_t most) const noexcept {
  most = std::min<std::uint64_t>(most, size_ - number);
  std::size_t count = 0;
  while (count < most && equals(number + count, events[count])) ++count;
  return count;
}

template <class Take>
void History::append_copies(std::uint64_t number, std::uint64_t count, Take take) {
  while (count != 0) {
    const std::size_t from = slot(number);
    const std::size_t to = slot(size_);
    const std::uint64_t piece =
        std::min({count, std::uint64_t{kCapacity - from}, std::uint64_t{kCapacity - to}});
    const Entry* const old = entries_.get() + from;
    Entry* const copy = entries_.get() + to;
    const TimeGuess* const old_guess = guesses_.get() + from;
    TimeGuess* const guess = guesses_.get() + to;
    for (std::uint64_t i = 0; i < piece; ++i) {
      TimeGuess learned = old_guess[i];
      take(old[i].event, learned);
      copy[i] = old[i];
      guess[i] = learned;
    }
    number += piece;
    size_ += piece;
    count -= piece;
  }
  allocated_ = event(size_ - 1).time;
}

}  // namespace gpumemtrace
