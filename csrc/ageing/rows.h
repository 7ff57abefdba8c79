// Records of a trace as columns, each with what is true after it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "trace/event.h"
#include "trace/event_columns.h"

namespace gpumemtrace::ageing {

// The lines of one device that the allocator tells: requested, allocated, active, reserved bytes.
struct Levels {
  static constexpr std::size_t kCount = 4;
  std::array<std::int64_t, kCount> bytes{};

  std::int64_t requested() const noexcept { return bytes[0]; }
  std::int64_t allocated() const noexcept { return bytes[1]; }
  std::int64_t active() const noexcept { return bytes[2]; }
  std::int64_t reserved() const noexcept { return bytes[3]; }
  void raise_to(const Levels& other) noexcept {
    for (std::size_t i = 0; i < kCount; ++i) bytes[i] = std::max(bytes[i], other.bytes[i]);
  }
  bool operator==(const Levels&) const = default;
};

inline bool is_baseline(const Event& event) noexcept {
  return event.kind == Kind::kStats &&
         event.flags == static_cast<std::uint32_t>(StatsCause::kBaseline);
}

// Consecutive records; nothing is owned.
struct Rows {
  std::size_t count = 0;
  EventColumns events{};
  std::array<std::int64_t*, Levels::kCount> lines{};  // of the device below
  std::int64_t* block_bytes = nullptr;                // of an alloc: what the allocator took for it
  std::int16_t* of_device = nullptr;  // its own, or that of the block that it frees; -1 = none
  std::uint8_t* unsure = nullptr;     // events of it were lost, and no counters read since
  // Of a free, and of what is said of a block: so many records ago its alloc was; 0 = not known.
  std::uint32_t* since_alloc = nullptr;

  Kind kind(std::size_t i) const noexcept { return static_cast<Kind>(events.kind[i]); }
  std::int64_t allocated(std::size_t i) const noexcept { return lines[1][i]; }
  std::int64_t reserved(std::size_t i) const noexcept { return lines[3][i]; }
  Levels levels(std::size_t i) const noexcept {
    return {{lines[0][i], lines[1][i], lines[2][i], lines[3][i]}};
  }
  Event event(std::size_t i) const noexcept {
    return {static_cast<std::uint64_t>(events.time_ns[i]),
            events.address[i],
            events.size_bytes[i],
            events.stream[i],
            events.extra[i],
            events.thread[i],
            events.site[i],
            events.flags[i],
            events.device[i],
            kind(i)};
  }
  // The alloc of the block that record `i` is about, if it is one of these; SIZE_MAX = it isn't.
  std::size_t alloc_of(std::size_t i) const noexcept {
    const std::uint32_t ago = since_alloc[i];
    if (ago == 0 || ago > i || kind(i - ago) != Kind::kAlloc) return SIZE_MAX;
    return events.address[i - ago] == events.address[i] ? i - ago : SIZE_MAX;
  }
  // `count` of them from `first` on.
  Rows part(std::size_t first, std::size_t count) const noexcept;
};

// Room for records. Keeps its memory.
class RowBuffer {
 public:
  std::size_t size() const noexcept { return size_; }
  // Of all; valid until the buffer changes.
  Rows rows() noexcept;
  // Records behind those that are there, of which nothing is known yet.
  void grow(std::size_t count);
  void append(const Rows& rows);
  // Leaves out the first ones; of the others only what was decoded stays.
  void drop_front(std::size_t count);
  void clear() noexcept { size_ = 0; }
  void release();  // clears, and gives its memory back

 private:
  template <class Each>
  void for_each_decoded(Each each);

  std::size_t size_ = 0;
  std::vector<std::int64_t> time_;
  std::vector<std::uint16_t> kind_;
  std::array<std::vector<std::uint64_t>, 4> wide_;    // address, size, stream, extra
  std::array<std::vector<std::uint32_t>, 3> narrow_;  // thread, site, flags
  std::vector<std::int16_t> device_;
  std::array<std::vector<std::int64_t>, Levels::kCount> lines_;
  std::vector<std::int64_t> block_bytes_;
  std::vector<std::int16_t> of_device_;
  std::vector<std::uint8_t> unsure_;
  std::vector<std::uint32_t> since_alloc_;
};

inline Rows Rows::part(std::size_t first, std::size_t many) const noexcept {
  Rows part = *this;
  part.count = many;
  part.events = events.from(first);
  for (auto& line : part.lines) line += first;
  part.block_bytes += first;
  part.of_device += first;
  part.unsure += first;
  part.since_alloc += first;
  return part;
}

}  // namespace gpumemtrace::ageing
