// The lines of a device (requested, allocated, active, reserved bytes) at every record.
//
// A stream: feed() the records of a trace in order, in batches of any size.
//
// How each line is known:
//   requested  + size at an alloc, - the same at its free; set by kStats
//   allocated  the allocator's block: kAlloc.extra (its own counter right after) where it was read,
//              else the size rounded to 512 bytes as PyTorch's allocator rounds it, plus what it
//              leaves unsplit (large_segments.h, from the segments told); set by kStats
//   active     allocated + what waited for another stream at the last kStats
//   reserved   the last kStats
// A line is uncertain after records were lost or a free had no alloc, until the next kStats.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "compute/block_table.h"
#include "compute/columns.h"
#include "compute/large_segments.h"

namespace gpumemtrace::compute {

// One value per record: the lines of *its* device after it. `device` is the record's own, or that
// of the block that it frees; records of no device have -1 and lines of 0.
struct Lines {
  std::int16_t* device;
  std::int64_t* requested;
  std::int64_t* allocated;
  std::int64_t* active;
  std::int64_t* reserved;
  std::uint8_t* uncertain;
};

// Something that can't be true of a whole and correct trace.
struct Anomaly {
  enum Type : std::uint8_t { kDoubleAlloc = 1, kUnknownFree = 2, kSizeMismatch = 3 };
  Type type;
  std::int16_t device;
  std::uint64_t address;
  std::int64_t event;  // number of the event, counting allocs and frees only, from 0
  std::int64_t other;  // the event it contradicts (the first alloc, the matching alloc), -1 = none
};

// Is told of every block, in order; for analyses of what is in use.
class BlockObserver {
 public:
  virtual ~BlockObserver() = default;
  // The alloc `records[i]`, alloc `number` of the trace, was served with `allocated` bytes. Returns
  // what it wants to be told the block as.
  virtual std::uint32_t born(const Columns& records, std::size_t i, std::int64_t number,
                             std::int64_t allocated) = 0;
  // What was thought of the block's bytes has turned out wrong.
  virtual void resized(std::uint32_t block, std::int64_t allocated) = 0;
  // By `records[i]` of the feed: a free, or an alloc where it was.
  virtual void died(std::uint32_t block, std::size_t i) = 0;
  // `records[i]`, a kTag or kRecordStream, is about the block.
  virtual void told_of(std::uint32_t /*block*/, std::size_t /*i*/) {}
};

class LineBuilder {
 public:
  // Only the first anomalies of each type are kept; all are counted.
  static constexpr std::size_t kKeptAnomalies = 100;

  LineBuilder() = default;
  LineBuilder(LineBuilder&&) = default;

  void feed(const Columns& records, const Lines& out, BlockObserver* observer = nullptr);
  // The same, for records whose lines nobody asks for.
  void pass(const Columns& records);
  // One that goes on from here by itself. Not during feed(), and with no observer's blocks in it.
  LineBuilder copy() const;

  // Allocs and frees fed so far; allocs.
  std::int64_t events() const noexcept { return events_; }
  std::int64_t allocs() const noexcept { return allocs_; }
  std::int64_t live_blocks() const noexcept { return static_cast<std::int64_t>(live_.size()); }
  // Frees of blocks whose alloc was lost in a gap, or came before the trace.
  std::int64_t unseen_allocs() const noexcept { return unseen_allocs_; }
  std::int64_t anomaly_count(Anomaly::Type type) const noexcept { return counts_[type]; }
  const std::vector<Anomaly>& anomalies() const noexcept { return anomalies_; }

  struct Device {
    std::int64_t requested = 0;
    std::int64_t allocated = 0;
    std::int64_t pending = 0;  // active - allocated at the last kStats
    std::int64_t reserved = 0;
    bool has_stats = false;
    bool uncertain = false;
    bool has_events = false;
    std::uint64_t fed = 0;       // the last feed() with a record of this device
    bool in_use_before = false;  // its counters were not 0 when the trace began
    // Gaps seen, and how many of them the last kStats has healed.
    std::uint32_t gaps = 0;
    std::uint32_t healed_gaps = 0;
    // The block of the alloc that came last on this device, if nothing came since: a kStats that
    // follows means that it missed the cache.
    std::uint64_t last_alloc = 0;
    bool last_was_alloc = false;
    bool cache_flushed = false;  // since the last kStats
    bool models_blocks = true;   // false: rounding tells how large blocks are
    bool tells_segments = false;
    LargeSegments segments;
  };
  const std::map<std::int16_t, Device>& devices() const noexcept { return devices_; }
  // Whether the last feed() had a record of this device.
  bool was_fed(const Device& state) const noexcept { return state.fed == feeds_; }

 private:
  struct Block {
    std::int64_t size;       // requested
    std::int64_t allocated;  // what the allocator took for it
    std::int64_t event;
    std::uint32_t gaps;    // of its device, when it was born
    std::uint32_t handle;  // the observer's
  };

  LineBuilder(const LineBuilder&) = default;  // cached_ points into devices_: copy()

  // Calls `tell(i, number of its device, its state or nullptr)` after each record.
  template <class Tell>
  void feed_each(const Columns& records, Tell tell);
  Device& device(std::int16_t number);
  void alloc(Device& state, const Columns& records, std::size_t i);
  void free(Device& state, const Columns& records, std::size_t i);
  void unknown_free(Device* state, const Columns& records, std::size_t i);
  void stats(Device& state, const Columns& records, std::size_t i);
  void miss(Device& state, const Columns& records, std::size_t i);
  void size_missed(Device& state, const Columns& records, std::size_t i, Block& block);
  void gap(std::int16_t number);
  void report(Anomaly::Type type, const Columns& records, std::size_t i, std::int64_t other);

  BlockTable<Block> live_;
  std::map<std::int16_t, Device> devices_;
  Device* cached_ = nullptr;  // the device of the record before; map nodes do not move
  std::int16_t cached_number_ = -1;
  bool gap_before_ = false;            // events of devices not seen yet may have been lost
  BlockObserver* observer_ = nullptr;  // during feed()
  std::int64_t events_ = 0;
  std::int64_t allocs_ = 0;
  std::uint64_t feeds_ = 0;
  std::int64_t unseen_allocs_ = 0;
  std::int64_t counts_[4] = {};
  std::vector<Anomaly> anomalies_;
};

}  // namespace gpumemtrace::compute
