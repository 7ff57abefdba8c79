#include "torch/block_streams.h"

#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <array>

namespace gpumemtrace::hook {
namespace {

using StreamRanges = std::array<StreamRange, kStreamRanges>;

// 2 MiB of addresses; a thread touches the lines of its own ranges. The last ones stay empty.
constinit std::array<StreamRanges, kInFlightSlots + 1> g_ranges{};

constexpr std::uint64_t kUnderWay = kChangeEnded - 1;
constexpr std::uint64_t kNotNow = kUnderWay | kStreamsNotFollowed | kStreamsNotYetFollowed;

constexpr std::uintptr_t granule_of(std::uintptr_t address) noexcept {
  return address >> kGranuleBits;
}

}  // namespace

alignas(128) constinit std::atomic<std::uint64_t> g_period{kStreamsNotYetFollowed};

void follow_streams() noexcept {
  g_period.fetch_and(~kStreamsNotYetFollowed, std::memory_order_release);
}

void stop_following_streams() noexcept {
  g_period.fetch_or(kStreamsNotFollowed, std::memory_order_relaxed);
}

bool are_streams_followed() noexcept {
  const std::uint64_t now = g_period.load(std::memory_order_relaxed);
  return (now & (kStreamsNotFollowed | kStreamsNotYetFollowed)) == 0;
}

// The default stream needs no look-up: 0 on both sides.
cudaStream_t current_stream(c10::DeviceIndex device) {
  const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream(device);
  return stream.id() == 0 ? nullptr : stream.stream();
}

StreamRange* stream_ranges_of(std::size_t slot) noexcept { return g_ranges[slot].data(); }
StreamRange* no_stream_ranges() noexcept { return stream_ranges_of(kInFlightSlots); }

cudaStream_t look_up_stream(std::uintptr_t address, c10::DeviceIndex device) {
  const cudaStream_t stream = current_stream(device);
  const std::uint64_t now = g_period.load(std::memory_order_acquire);
  if ((now & kNotNow) != 0 || t_notes.streams == no_stream_ranges()) return stream;
  StreamRange& range = t_notes.streams[place_of_range(address)];
  if (range.period == now && range.stream == stream &&
      granule_of(range.first) == granule_of(address)) {
    const std::uintptr_t last = std::max(range.first + range.span, address);
    range.first = std::min(range.first, address);
    range.span = last - range.first;
  } else {
    range = {address, 0, now, stream};
  }
  return stream;
}

}  // namespace gpumemtrace::hook
