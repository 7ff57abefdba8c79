// The stream that a block was allocated on, told from its address.
//
// To ask torch for the current stream takes 11 to 13 ns at each allocation. But a segment was taken
// from the driver for one stream, and the native allocator hands its blocks out to that stream alone:
// whoever was told the stream of one block knows it for its neighbours, as long as that segment is
// there. So each thread keeps the ranges that it has seen, each with the period it was seen in:
//
//   segments     |== stream 1 ==================|== stream 2 ==========|
//   granules   |---------------|---------------|---------------|------------    2 MiB, by address
//   blocks            a     b                     c
//   a range           |-----|                                                   [a, b]: stream 1
//
// A range never leaves its granule. A segment has 2 MiB or more, wherever it begins: none fits in
// between two blocks of a granule. So where a and b are of one stream, what lies between is, too.
//
// A period is a time in which no segment comes or goes. While one may, none is:
//
//   X  |-- malloc: miss . . . cudaFree . . cudaMalloc . . . --| push |
//                   ^ under way: 1                                    ^ under way: 0, ended: +1
//   Y       |- hit, push -|        |- hit, push -|     |- hit, push -|      asks torch, keeps nothing
//   Y                                                                  |- hit, push -|    a new period
//
//   - A segment comes in a cache miss alone, and torch calls NoteMiss (miss_callback.cc) before it asks
//     the driver. Y can be given a block of the new segment only after X was done with it under the
//     allocator's lock: so Y finds X's change under way, or ended. That torch may release its lock
//     around cudaMalloc (release_lock_on_cudamalloc) changes nothing, nor do several devices: it is the
//     lock that X holds when it puts the segment up and that Y takes to get the block.
//   - Y keeps a range only while no change is under way, for a block that it has just been given and
//     that can't have been given back: its segment is there. If Y's period is the one after X's change
//     it acquires what X released, so it is X's new segment, not an old one.
//   - What else may give segments back (empty_cache and its like) is a change as well, since memory need
//     not come from the driver: a pool's own allocator (torch.cuda.MemPool) may lend out a block of
//     another segment, and have that one's blocks handed out again later, without a miss.
//
// Which change ends with which operation must be certain. Where it isn't, no range is kept any more:
// where a miss was not in an operation of ours (somebody calls the native allocator past the hook, or
// is one of more threads than there are slots).
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "torch/allocation_notes.h"
#include "torch/torch_compat.h"

namespace gpumemtrace::hook {

// Addresses from `first` to `first + span` are of `stream`, in that period.
struct alignas(32) StreamRange {
  std::uintptr_t first = 0;
  std::uintptr_t span = 0;
  std::uint64_t period = 0;
  cudaStream_t stream = nullptr;
};

inline constexpr unsigned kGranuleBits = 21;  // 2 MiB: kSmallBuffer, torch's smallest segment
inline constexpr std::size_t kStreamRanges = 1024;

// The only place for a range that holds this address. The upper bits take part, since segments that
// are far apart may have the same lower ones.
inline std::size_t place_of_range(std::uintptr_t address) noexcept {
  return ((address >> kGranuleBits) ^ (address >> (kGranuleBits + 12))) % kStreamRanges;
}

// Changes under way in the lower 16 bits; changes that have ended from there on; above those:
inline constexpr std::uint64_t kChangeEnded = std::uint64_t{1} << 16;
inline constexpr std::uint64_t kStreamsNotFollowed = std::uint64_t{1} << 62;  // for good
inline constexpr std::uint64_t kStreamsNotYetFollowed = std::uint64_t{1} << 63;

// A line of its own: read by every allocation, written rarely. release (end_change) -> acquire
// (look_up_stream); begin_change is carried by the allocator's lock.
extern constinit std::atomic<std::uint64_t> g_period;

// The hook stands before a native allocator that is up.
void follow_streams() noexcept;
// From now on torch is asked each time.
void stop_following_streams() noexcept;
bool are_streams_followed() noexcept;
// Before that no operation is ours.
inline bool is_before_hook() noexcept {
  return (g_period.load(std::memory_order_relaxed) & kStreamsNotYetFollowed) != 0;
}

// Around what may take segments from the driver or give them back.
inline void begin_change() noexcept { g_period.fetch_add(1, std::memory_order_relaxed); }
inline void end_change() noexcept {
  g_period.fetch_add(kChangeEnded - 1, std::memory_order_release);
}

// For its scope.
struct ChangingSegments {
  ChangingSegments() { begin_change(); }
  ~ChangingSegments() { end_change(); }
  ChangingSegments(const ChangingSegments&) = delete;
  ChangingSegments& operator=(const ChangingSegments&) = delete;
};

// The current stream of a device, as torch knows it. Throws what torch throws.
cudaStream_t current_stream(c10::DeviceIndex device);

// The ranges of the thread that has this slot (in_flight.h), or of those that share one: none.
StreamRange* stream_ranges_of(std::size_t slot) noexcept;
StreamRange* no_stream_ranges() noexcept;

// Out of line, for a block in no known range: asks torch, and keeps what it says if it may.
cudaStream_t look_up_stream(std::uintptr_t address, c10::DeviceIndex device);

// The stream of a block that the native allocator has just handed out to the current stream. Between
// enter() and leave().
inline cudaStream_t stream_of(const void* block, c10::DeviceIndex device) {
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  const StreamRange& range = t_notes.streams[place_of_range(address)];
  if (range.period == g_period.load(std::memory_order_relaxed) &&
      address - range.first <= range.span) [[likely]] {
    return range.stream;
  }
  return look_up_stream(address, device);
}

}  // namespace gpumemtrace::hook
