#include "compute/pairing.h"

namespace gpumemtrace::compute {

void Pairing::feed(const Columns& records, std::int64_t* partner) {
  for (std::size_t i = 0; i < records.count; ++i) {
    const std::uint64_t address = records.address[i];
    const std::int16_t device = records.device[i];
    partner[i] = -1;
    switch (records.kind_at(i)) {
      case Kind::kAlloc: {
        if (device >= 0) last_alloc(device) = allocs_;
        const Block born{allocs_++, records.size[i]};
        if (Block* old = live_.find(address, device); old != nullptr) {
          partner[i] = old->number;
          *old = born;
        } else {
          live_.insert(address, device, born);
        }
        break;
      }
      case Kind::kFree: {
        BlockTable<Block>::Slot taken;
        if (live_.erase(address, device, &taken)) {
          partner[i] = taken.value.number;
        } else {
          ++unborn_frees_;
        }
        break;
      }
      case Kind::kTag:
        partner[i] = holder_of(address, device);
        break;
      case Kind::kAllocFailed:
        if (device >= 0) last_alloc(device) = -1;
        break;
      case Kind::kSegmentAlloc:
      case Kind::kSegmentMap:
      case Kind::kRetry:
        if (device >= 0) partner[i] = last_alloc(device);
        break;
      default:
        break;
    }
  }
}

std::int64_t& Pairing::last_alloc(std::int16_t device) {
  const auto index = static_cast<std::size_t>(device);
  if (index >= last_alloc_.size()) last_alloc_.resize(index + 1, -1);
  return last_alloc_[index];
}

std::int64_t Pairing::holder_of(std::uint64_t address, std::int16_t device) {
  if (const Block* block = live_.find(address, device); block != nullptr) return block->number;
  // A view into a larger block: rare enough to look at every live block.
  std::int64_t number = -1;
  live_.for_each([&](const auto& slot) {
    const bool same_device = device < 0 || slot.device == device;
    if (same_device && slot.address <= address &&
        address - slot.address < static_cast<std::uint64_t>(slot.value.size)) {
      number = slot.value.number;
    }
  });
  return number;
}

}  // namespace gpumemtrace::compute
