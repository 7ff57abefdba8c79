#include "torch/block_snapshot.h"

#include <algorithm>

namespace gpumemtrace::hook {

BlockSnapshot take_snapshot(CUDAAllocator& native) {
  BlockSnapshot result;
  if (!native.initialized()) {
    result.is_whole = true;
    return result;
  }
  if (native.isHistoryEnabled()) return result;
  for (const auto& segment : snapshot_blocks(native).segments) {
    const auto stream = reinterpret_cast<std::uintptr_t>(segment.stream);
    result.segments.push_back({segment.address, segment.total_size, stream, segment.device,
                               segment.is_expandable, segment.is_large,
                               segment.owner_private_pool_id});
    std::uintptr_t address = segment.address;
    for (const auto& block : segment.blocks) {
      if (block.allocated) {
        result.blocks.push_back(
            {address, block.requested_size, block.size, stream, segment.device});
      }
      address += block.size;
    }
  }
  result.is_whole = true;
  std::sort(result.blocks.begin(), result.blocks.end(),
            [](const KnownBlock& a, const KnownBlock& b) { return a.address < b.address; });
  return result;
}

}  // namespace gpumemtrace::hook
