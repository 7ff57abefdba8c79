// The segments of every device at every record, replayed from the records alone.
//
// A stream: feed() the records of a trace in order, in batches of any size.
//
// How it is known:
//   segments  kSegmentAlloc/Map/Free/Unmap; their pools kSegmentPool, else the pool that the thread
//             has open. Where a flush of the cache tells no kSegmentFree (older recorders), what
//             PyTorch gives back then, if that is what reserved fell by.
//   blocks    kAlloc, kFree: an alloc takes the front of a free block. Of a large one it takes all
//             if not more than 1 MiB would be left (should_split, kSmallSize in
//             torch/c10/cuda/CUDACachingAllocator.cpp), else the size rounded to 512 bytes;
//             kAlloc.extra, where it was read, overrides both.
//   pending   a freed block that kRecordStream named, until a kStats says that as much became free:
//             first in, first out for each stream, as PyTorch polls its events.
// Each kStats is compared with the sums: a device is `known` when segments were recorded, every
// block lies in one, and nothing has contradicted the allocator's counters since they agreed; not
// between a segment and the alloc that it was taken for, since nobody could have used it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "compute/columns.h"
#include "compute/segment_blocks.h"

namespace gpumemtrace::compute {

// One value per record: of its device, after it; records of no device have -1 and 0.
struct FreeLines {
  std::int16_t* device;
  std::int64_t* reserved;
  std::int64_t* active;
  std::int64_t* free[kFreeCauses];  // by FreeCause
  std::uint8_t* known;
};

class SegmentReplay {
 public:
  void feed(const Columns& records) { feed(records, nullptr); }
  void feed(const Columns& records, const FreeLines* out);

  struct Device {
    bool has_segments = false;
    bool in_doubt = false;
    bool is_flushed = false;  // the cache, since the last kStats
    bool is_growing = false;  // memory was taken, and the block that it is for is not there yet
    std::deque<std::uint32_t> pending;
    std::uint64_t homeless_blocks = 0;
    std::uint64_t homeless_bytes = 0;
    struct OpenPool {
      PoolId pool;
      std::uint32_t thread;
    };
    std::vector<OpenPool> open_pools;
    struct Asked {
      std::uint64_t stream;
      std::uint64_t bytes;
    };
    std::vector<Asked> asked;  // the main stream is the one that has asked for the most
    std::size_t last_asked = 0;
    std::size_t main = 0;
  };
  const std::map<std::int16_t, Device>& devices() const noexcept { return devices_; }
  SegmentBlocks& blocks() noexcept { return blocks_; }
  bool is_known(std::int16_t device);

 private:
  // Addresses and sizes come from a file: sums of what lies below this don't overflow.
  static constexpr std::uint64_t kTooLarge = std::uint64_t{1} << 48;

  Device& device(std::int16_t number);
  void alloc(std::int16_t number, const Columns& records, std::size_t i);
  std::int16_t free(const Columns& records, std::size_t i);
  void stats(std::int16_t number, const Columns& records, std::size_t i);
  void segment(std::int16_t number, const Columns& records, std::size_t i);
  void segment_pool(std::int16_t number, const Columns& records, std::size_t i);
  void gap(std::int16_t number);
  void insert(std::int16_t number, std::uint64_t base, std::uint64_t size,
              const SegmentBlocks::Group& group, std::uint64_t page, bool is_size_class_told);
  void remove(std::int16_t number, std::uint32_t segment);
  void ask(std::int16_t number, std::uint64_t stream, std::uint64_t size);
  bool place(std::int16_t number, std::uint64_t address, std::uint64_t size, std::uint64_t counter,
             std::int64_t alloc);
  std::uint64_t fit(const SegmentBlocks::Segment& segment, std::uint64_t free, std::uint64_t size,
                    std::uint64_t counter, std::int16_t number);
  void end_block(std::uint32_t block);
  void release_pending(std::int16_t number, std::uint64_t bytes);
  bool infer_flush(std::int16_t number, std::uint64_t reserved);

  // In use, but in no segment that is known: its record may come after that of the block.
  struct Homeless {
    std::uint64_t size;
    std::uint64_t counter;
    std::int64_t alloc;
  };
  void add_homeless(std::int16_t number, std::uint64_t address, const Homeless& block);
  bool end_homeless(std::int16_t number, std::uint64_t address, std::int16_t* of = nullptr);
  bool house(std::int16_t number);

  SegmentBlocks blocks_;
  BlockTable<Homeless> homeless_;
  std::map<std::int16_t, Device> devices_;
  Device* cached_ = nullptr;  // map nodes do not move
  std::int16_t cached_number_ = -1;
  bool lost_before_ = false;  // events of devices not seen yet may have been lost
  std::int64_t allocs_ = 0;
};

}  // namespace gpumemtrace::compute
