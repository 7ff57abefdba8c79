// torch's table of allocators by device type: torch.accelerator.empty_cache and its like look there.
#pragma once

#include <c10/core/Allocator.h>

#include <cstdint>

namespace gpumemtrace::hook {

// Puts `ours` where `native` is; nothing happens where it isn't. torch's changeCurrentAllocator leaves
// the table as it is. An entry gives way to one of its own priority or a higher one, and there is no
// asking for it: so the lowest that works is taken.
inline void take_place_in_device_table(const c10::Allocator* native, c10::Allocator* ours) {
  const auto current = []() -> c10::Allocator* {
    try {
      return c10::GetAllocator(c10::DeviceType::CUDA);
    } catch (...) {
      return nullptr;  // no entry: older torch
    }
  };
  for (unsigned priority = 0; priority <= UINT8_MAX && current() == native; ++priority) {
    c10::SetAllocator(c10::DeviceType::CUDA, ours, static_cast<std::uint8_t>(priority));
  }
}

}  // namespace gpumemtrace::hook
