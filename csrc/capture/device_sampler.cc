#include "capture/device_sampler.h"

#include "capture/producer_state.h"

namespace gpumemtrace::capture {
namespace {

constexpr std::uint64_t kTellAgainNs = 1'000'000'000;

}  // namespace

std::vector<Event> DeviceSampler::sample(std::uint64_t now_ns) {
  std::vector<Event> events;
  const DeviceProbe* probe = device_probe();
  if (probe == nullptr || in_use_ == 0 || interval_ns_ == 0) return events;
  if (now_ns < next_ns_ && !is_asked_) return events;
  next_ns_ = now_ns + interval_ns_;
  for (std::size_t device = 0; device < kMaxDevices; ++device) {
    DeviceMemory memory;
    if ((in_use_ >> device & 1U) == 0) continue;
    if (!reader_.read(*probe, static_cast<int>(device), memory)) continue;
    has_read_ = true;
    if (!is_asked_ && memory == last_[device] && now_ns < last_ns_[device] + kTellAgainNs) continue;
    last_[device] = memory;
    last_ns_[device] = now_ns;
    Event event{};
    event.kind = Kind::kDeviceUsed;
    event.device = static_cast<std::int16_t>(device);
    event.address = memory.own_bytes;
    event.size = memory.used_bytes;
    event.stream = memory.capacity_bytes;
    event.extra = memory.other_bytes;
    event.flags = memory.others_known ? static_cast<std::uint32_t>(kOthersKnown) : 0;
    events.push_back(event);
  }
  is_asked_ = false;
  return events;
}

}  // namespace gpumemtrace::capture
