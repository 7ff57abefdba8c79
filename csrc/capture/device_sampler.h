// When the used memory of which device is worth a record.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "capture/device_memory.h"
#include "trace/event.h"

namespace gpumemtrace::capture {

// The drain thread's.
class DeviceSampler {
 public:
  explicit DeviceSampler(std::uint64_t interval_ns) noexcept : interval_ns_(interval_ns) {}

  // An allocator event of this device came by: from now on it is sampled.
  void saw(std::int16_t device) noexcept {
    if (device >= 0 && device < kMaxDevices) in_use_ |= 1U << device;
  }

  // Whether there was ever a device to sample: one that had an allocator event, and an answer.
  bool has_read() const noexcept { return has_read_; }

  // Something began or ended that may show in the figures: the next call of sample() is due, and
  // tells them even if they are the same.
  void ask() noexcept { is_asked_ = true; }

  // When due: one kDeviceUsed event (time left at 0) for each device in use whose figures have
  // changed, or were last told a second ago. An interval of 0 means never.
  std::vector<Event> sample(std::uint64_t now_ns);

 private:
  std::uint64_t interval_ns_;
  std::uint64_t next_ns_ = 0;
  bool has_read_ = false;
  bool is_asked_ = false;
  std::uint32_t in_use_ = 0;  // bit d: device d
  DeviceMemoryReader reader_;
  std::array<DeviceMemory, kMaxDevices> last_{};
  std::array<std::uint64_t, kMaxDevices> last_ns_{};
};

}  // namespace gpumemtrace::capture
