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

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "trace/event.h"
#include "trace/event_columns.h"
#include "trace/time_guess.h"

namespace gpumemtrace {

// Events are numbered from 0 since the last reset.
class History {
 public:
  static constexpr std::uint64_t kCapacity = std::uint64_t{1} << 16;

  // An event and its references; its `time` means nothing.
  struct Entry {
    Event event;
    std::uint32_t address_reference;
    std::uint32_t size_reference;
  };

  History();
  void reset() noexcept;

  // How many events there have been.
  std::uint64_t size() const noexcept { return size_; }
  // Whether the event `distance` before the next one is still known.
  bool reaches(std::uint64_t distance) const noexcept {
    return distance - 1 < size_ && distance < kCapacity;
  }

  // Of an event in reach, by its number.
  Kind kind(std::uint64_t number) const noexcept { return static_cast<Kind>(kind_[slot(number)]); }
  Event event(std::uint64_t number) const noexcept;  // its `time` means nothing
  std::uint64_t address(std::uint64_t number) const noexcept { return address_[slot(number)]; }
  std::uint64_t size_bytes(std::uint64_t number) const noexcept {
    return size_bytes_[slot(number)];
  }
  TimeGuess guess(std::uint64_t number) const noexcept {
    return {static_cast<std::uint64_t>(gap_[slot(number)]), spread_[slot(number)]};
  }
  bool equals(std::uint64_t number, const Event& event) const noexcept;

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

  // Takes in the next event.
  void append(const Entry& entry, TimeGuess guess) noexcept;
  // Takes in copies of the `count` >= 1 events from `number` on: in reach, and before the new ones.
  // All but their guesses: each is to be set after it.
  void append_copies(std::uint64_t number, std::uint64_t count) noexcept;
  void set_guess(std::uint64_t number, TimeGuess guess) noexcept {
    gap_[slot(number)] = static_cast<std::int64_t>(guess.gap);
    spread_[slot(number)] = guess.spread;
  }
  // Copies the fields of `count` events from `number` on, but no times.
  void copy_out(std::uint64_t number, std::uint64_t count, const EventColumns& out) const noexcept;

 private:
  template <class Field>
  using Column = std::unique_ptr<Field[]>;

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
  template <class Field>
  static void copy_piece(const Column<Field>& column, std::size_t from, std::size_t to,
                         std::size_t count) noexcept {
    std::copy_n(column.get() + from, count, column.get() + to);
  }

  std::uint64_t size_ = 0;
  std::uint64_t allocated_ = 0;  // after the last event
  std::array<Event, 64> told_ = {};
  // Not filled with anything: what was not written is out of reach.
  Column<std::int64_t> gap_;
  Column<std::uint16_t> kind_;
  Column<std::uint64_t> address_, size_bytes_, stream_, extra_;
  Column<std::uint32_t> thread_, site_, flags_;
  Column<std::int16_t> device_;
  Column<std::uint32_t> spread_, address_reference_, size_reference_;
  Column<std::uint64_t> allocated_after_;
};

}  // namespace gpumemtrace
