// What the native allocator holds at one moment, segment by segment and block by block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "torch/torch_compat.h"

namespace gpumemtrace::hook {

struct KnownSegment {
  std::uintptr_t address;
  std::size_t size;
  std::uintptr_t stream;
  c10::DeviceIndex device;
  bool is_expandable;
  bool is_large;
  MempoolId_t pool;
};

// A block that is handed out.
struct KnownBlock {
  std::uintptr_t address;
  std::size_t requested;
  std::size_t size;
  std::uintptr_t stream;
  c10::DeviceIndex device;
};

struct BlockSnapshot {
  std::vector<KnownSegment> segments;
  std::vector<KnownBlock> blocks;  // by address
  bool is_whole = false;           // else the allocator would not say what it holds
};

// Takes the allocator's locks and some 200 us, more with many blocks. Not whole, and empty, while
// torch records its history, since a snapshot would leave an entry there. Throws what torch throws.
BlockSnapshot take_snapshot(CUDAAllocator& native);

}  // namespace gpumemtrace::hook
