// The segments of all devices as the allocator holds them: each a row of blocks in address order.
//
// Mirrors what PyTorch's allocator does with memory that it has: a free block is split at its
// front, and free neighbours of one segment are merged. Knows nothing of records (segments.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "compute/block_table.h"

namespace gpumemtrace::compute {

// Why bytes are reserved but not active: disjoint, and together all of them. The first that holds:
enum class FreeCause : std::uint8_t {
  kPrivatePool,  // in a segment of a private pool: for what is routed there alone
  kOtherStream,  // in a segment of another stream than the device's main one
  kIdle,       // empty_cache would return it: a whole segment, or whole pages of an expandable one
  kSmallPool,  // beside blocks in use, in the pool for requests of up to 1 MiB
  kInterleaved,  // beside blocks in use, in the pool for larger ones
};
constexpr std::size_t kFreeCauses = 5;

struct PoolId {
  std::uint64_t first = 0;
  std::uint64_t second = 0;
  bool is_private() const noexcept { return first != 0 || second != 0; }
  bool operator==(const PoolId&) const = default;
};

class SegmentBlocks {
 public:
  static constexpr std::uint32_t kNone = UINT32_MAX;

  enum class State : std::uint8_t { kFree = 0, kLive = 1, kPending = 2 };

  struct Block {
    std::uint64_t address;
    std::uint64_t size;
    std::int64_t requested;
    std::int64_t number;         // of the alloc that it serves
    std::uint64_t other_stream;  // that uses it too, where `is_shared`
    std::uint32_t segment;
    std::uint32_t previous;  // in its segment, kNone at the end
    std::uint32_t next;
    std::int16_t device;
    State state;
    bool is_shared;
  };

  // Segments of one stream and pool serve one another's requests.
  struct Group {
    std::int16_t device;
    std::uint64_t stream;
    PoolId pool;
    bool is_small;
    FreeCause when_idle;  // the cause of its bytes that empty_cache would take, and of the rest
    FreeCause otherwise;
    std::uint64_t reserved = 0;
    std::uint64_t free = 0;
    std::uint64_t idle = 0;  // of the free bytes, those that the driver could get back
  };

  struct Segment {
    std::uint64_t base;
    std::uint64_t size;
    std::uint64_t free;
    std::uint64_t page;   // what an expandable segment is mapped in, 0 = not expandable
    std::uint32_t group;  // kNone: this slot is vacant
    std::uint32_t first;
    std::uint32_t last;
    std::uint32_t recent;  // where the last search ended
    bool is_size_class_told;
    std::uint64_t end() const noexcept { return base + size; }
  };

  struct Totals {
    std::uint64_t reserved = 0;
    std::uint64_t live = 0;  // handed out
    std::uint64_t pending = 0;
    std::array<std::uint64_t, kFreeCauses> free{};
    std::uint64_t main_stream = 0;
  };

  // --- segments; the range must be free of others (see remove) ---

  std::uint32_t add(std::int16_t device, std::uint64_t base, std::uint64_t size, const Group& group,
                    std::uint64_t page, bool is_size_class_told);
  // Free bytes at the end of an expandable segment.
  void extend(std::uint32_t segment, std::uint64_t size);
  // Two expandable segments that touch become one, the first.
  void join(std::uint32_t first, std::uint32_t second);
  // Returns the blocks of it that were in use.
  std::vector<Block> remove(std::uint32_t segment);
  // Takes [begin, end) out of the middle of a free block of an expandable segment, or returns false.
  bool cut(std::uint32_t segment, std::uint64_t begin, std::uint64_t end);
  void regroup(std::uint32_t segment, const Group& group);
  // The driver gets back what empty_cache would give it, of segments for which `chosen(group)`.
  template <class Chosen>
  void release_idle(std::int16_t device, Chosen chosen);

  // The segment that holds `address`, kNone without one; the first that begins at or after it.
  std::uint32_t holder_of(std::int16_t device, std::uint64_t address) const;
  std::uint32_t next_from(std::int16_t device, std::uint64_t address) const;

  // --- blocks ---

  // The block that begins at `address`, free or not; a device below 0 matches any.
  std::uint32_t find(std::uint64_t address, std::int16_t device) noexcept {
    const std::uint32_t* block = table_.find(address, device);
    return block == nullptr ? kNone : *block;
  }
  // The free block that begins at `address` after what lies before it is split off; kNone when
  // the address is not free.
  std::uint32_t free_block_at(std::int16_t device, std::uint64_t address);
  // Hands out the first `size` bytes of a free block.
  void take(std::uint32_t block, std::uint64_t size, std::int64_t requested, std::int64_t number);
  void set_pending(std::uint32_t block);
  // In use no more: free, and merged with free neighbours.
  void release(std::uint32_t block);

  void set_main_stream(std::int16_t device, std::uint64_t stream);

  Block& block(std::uint32_t i) noexcept { return blocks_[i]; }
  const Block& block(std::uint32_t i) const noexcept { return blocks_[i]; }
  const Segment& segment(std::uint32_t i) const noexcept { return segments_[i]; }
  const Group& group_of(const Segment& segment) const noexcept { return groups_[segment.group]; }
  const std::vector<Group>& groups() const noexcept { return groups_; }
  Totals& totals(std::int16_t device);
  std::uint64_t idle_bytes(std::uint32_t block) const noexcept;

  // By device and base.
  template <class Visit>
  void for_each_segment(std::int16_t device, Visit visit) const {
    for (auto it = by_base_.lower_bound({device, 0});
         it != by_base_.end() && it->first.first == device; ++it) {
      visit(it->second);
    }
  }

 private:
  using Key = std::pair<std::int16_t, std::uint64_t>;

  std::uint32_t group_for(const Group& wanted);
  std::uint32_t new_block(std::int16_t device, std::uint64_t address, std::uint64_t size,
                          std::uint32_t segment);
  void drop(std::uint32_t block);
  void link_after(std::uint32_t segment, std::uint32_t previous, std::uint32_t block);
  void unlink(std::uint32_t block);
  void count_free(const Block& block, bool is_added) noexcept;
  std::uint64_t idle_of(const Segment& segment, const Block& block) const noexcept;
  void set_causes(Group& group, std::uint64_t main_stream) const noexcept;
  std::uint32_t split(std::uint32_t block, std::uint64_t address);
  // A free block that is not counted as such yet: merges it with free neighbours.
  void settle(std::uint32_t block);

  BlockTable<std::uint32_t> table_;
  std::vector<Block> blocks_;
  std::vector<std::uint32_t> vacant_blocks_;
  std::vector<Segment> segments_;
  std::vector<std::uint32_t> vacant_segments_;
  std::vector<Group> groups_;
  std::map<Key, std::uint32_t> by_base_;
  std::map<std::int16_t, Totals> totals_;
  Totals* cached_ = nullptr;  // map nodes do not move
  std::int16_t cached_device_ = -1;
};

template <class Chosen>
void SegmentBlocks::release_idle(std::int16_t device, Chosen chosen) {
  std::vector<std::uint32_t> all;
  for_each_segment(device, [&](std::uint32_t segment) { all.push_back(segment); });
  for (const std::uint32_t i : all) {
    const Segment segment = segments_[i];
    if (!chosen(groups_[segment.group])) continue;
    if (segment.page == 0) {
      if (segment.free == segment.size) remove(i);
      continue;
    }
    std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;
    for (std::uint32_t b = segment.first; b != kNone; b = blocks_[b].next) {
      const std::uint64_t idle = idle_bytes(b);
      if (idle == 0) continue;
      const std::uint64_t offset = blocks_[b].address - segment.base;
      const std::uint64_t begin =
          segment.base + (offset + segment.page - 1) / segment.page * segment.page;
      ranges.emplace_back(begin, begin + idle);
    }
    for (const auto& [begin, end] : ranges) cut(holder_of(device, begin), begin, end);
  }
}

}  // namespace gpumemtrace::compute
