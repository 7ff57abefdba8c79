#include "kernels.h"

#include <cstring>
#include <iterator>

#include "config.h"

namespace simgpu {
namespace {

// In CUDA kernels' mangled names. The first pattern that fits counts.
struct Pattern {
  const char* needle;
  const char* name;
  const char* what;
  int least_major = 0;  // only counted from this compute capability on
};

constexpr Pattern kPatterns[] = {
    {"NonZeroOp", "nonzero", "finds nothing: its result, and what is indexed by a mask, is empty"},
};
constexpr size_t kPatternCount = std::size(kPatterns);
std::atomic<uint64_t> launches[kPatternCount];

}  // namespace

namespace kernels {

Slot slots[kSlots];

void count_launch(uint32_t pattern) noexcept {
  launches[pattern].fetch_add(1, std::memory_order_relaxed);
}

}  // namespace kernels

void register_kernel(const void* host, const char* device_name) noexcept {
  static uint32_t taken = 0;  // the loader's lock serialises
  for (uint32_t pattern = 0; pattern < kPatternCount; ++pattern) {
    if (std::strstr(device_name, kPatterns[pattern].needle) == nullptr) continue;
    if (kPatterns[pattern].least_major > config().major) continue;
    if (taken > kernels::kSlots / 2) return;  // note_launch needs empty slots
    for (uint32_t i = kernels::home_of(host);; i = (i + 1) % kernels::kSlots) {
      kernels::Slot& slot = kernels::slots[i];
      if (slot.host.load(std::memory_order_relaxed) != nullptr) continue;
      ++taken;
      slot.pattern.store(pattern, std::memory_order_relaxed);
      slot.host.store(host, std::memory_order_release);  // pairs with note_launch
      return;
    }
  }
}

void for_each_watched_kernel(const std::function<void(const char*, const char*, uint64_t)>& visit) {
  for (size_t i = 0; i < kPatternCount; ++i) {
    const uint64_t count = launches[i].load(std::memory_order_relaxed);
    if (count > 0) visit(kPatterns[i].name, kPatterns[i].what, count);
  }
}

uint64_t watched_kernels_seen() noexcept {
  uint64_t seen = 0;
  for (const auto& count : launches) seen += count.load(std::memory_order_relaxed) > 0 ? 1 : 0;
  return seen;
}

}  // namespace simgpu
