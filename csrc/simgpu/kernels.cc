#include "kernels.h"

#include <cstring>
#include <iterator>

#include "config.h"

namespace simgpu {
namespace {

// In CUDA kernels' mangled names. The first pattern that fits counts; neighbours may
// share a name.
struct Pattern {
  const char* needle;
  const char* name;
  const char* what;
  bool (*applies)() = [] { return true; };
};

// Since 2.10, and there on cards of compute capability 9.0 and 10.0, PyTorch puts cuDNN's attention
// first for half precision (check_prefer_cudnn_attention in its sdp_utils.cpp).
bool prefers_cudnn_attention() {
  const Config& c = config();
  return SIMGPU_CUDNN_ATTENTION_FIRST && (c.major == 9 || c.major == 10) && c.minor == 0;
}

constexpr const char* kSelection = "nonzero, unique, boolean masks";
constexpr const char* kEmptyResult = "select nothing: their results are empty";
constexpr const char* kAttention =
    "not simulated: PyTorch's flash or memory-efficient attention was taken, whose temporaries "
    "differ";
constexpr const char* kBatchNorm =
    "not simulated: PyTorch's own kernels were taken, without cuDNN's reserve space";

constexpr Pattern kPatterns[] = {
    {"DeviceSelectSweepKernel", kSelection, kEmptyResult},
    {"nique", kSelection, kEmptyResult},
    {"RunLength", kSelection, kEmptyResult},
    {"run_length", kSelection, kEmptyResult},
    {"flash_fwd", "cuDNN attention", kAttention, prefers_cudnn_attention},
    {"fmha_cutlassF_f16", "cuDNN attention", kAttention, prefers_cudnn_attention},
    {"fmha_cutlassF_bf16", "cuDNN attention", kAttention, prefers_cudnn_attention},
    {"batch_norm_collect_statistics", "cuDNN batch norm", kBatchNorm},
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
    if (!kPatterns[pattern].applies()) continue;
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
  for (size_t i = 0; i < kPatternCount;) {
    const Pattern& first = kPatterns[i];
    uint64_t count = 0;
    for (; i < kPatternCount && std::strcmp(kPatterns[i].name, first.name) == 0; ++i) {
      count += launches[i].load(std::memory_order_relaxed);
    }
    if (count > 0) visit(first.name, first.what, count);
  }
}

uint64_t watched_kernels_seen() noexcept {
  uint64_t seen = 0;
  for (const auto& count : launches) seen += count.load(std::memory_order_relaxed) > 0 ? 1 : 0;
  return seen;
}

}  // namespace simgpu
