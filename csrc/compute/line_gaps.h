// The gaps between the lines of a device, from what the program asked for up to the whole card:
// how large each was and when; and where the order of the lines does not hold, and why.
//
// A stream like LineBuilder, fed with what it made of the same records.
//
//   requested  <=  allocated  <=  active  <=  reserved  <=  device used  <=  capacity
//        rounding       pending       cached     outside, others       device free
//
// The first four lines are known at every record, device used is sampled. A sample may hold a
// segment already whose record comes after it, so what lies outside PyTorch is taken from samples
// behind which reserved stands still for kLagNs, and holds until the next of those.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "compute/columns.h"
#include "compute/totals.h"

namespace gpumemtrace::compute {

// A record, as the result names it.
struct Instant {
  std::int64_t time_ns = 0;
  std::int64_t event = 0;  // allocs and frees before it
  std::int64_t step = 0;
  std::int32_t path = -1;  // of phases
};

// One device at one instant; -1 = not known.
struct LinesAt {
  std::int64_t requested = 0;
  std::int64_t allocated = 0;
  std::int64_t active = 0;
  std::int64_t reserved = 0;
  std::int64_t device_used = -1;  // all of the others together: of the last reading, but reserved
  std::int64_t outside = -1;  // own process less reserved; own unknown: device used less reserved
  std::int64_t others = -1;   // other processes; not told one by one: all that is not ours
  std::int64_t unattributed = -1;  // in use, and charged to no process
  std::int64_t capacity = -1;
};

struct Extreme {
  bool found = false;
  std::int64_t value = 0;
  Instant when;
  LinesAt lines;
};

// What is looked for, over the run and in each phase.
enum Quantity : std::size_t {
  kRequested,
  kAllocated,
  kActive,
  kReserved,
  kDeviceUsedLine,
  kRounding,
  kPending,
  kCached,
  kOutside,
  kLowestFree,            // the least, like the next
  kLowestFreeWithCached,  // what a flush of the whole cache would leave
  kQuantities,
};

struct OrderBreak {
  enum Pair : std::uint8_t {
    kRequestedAllocated,
    kAllocatedActive,
    kActiveReserved,
    kReservedOwn,  // own process, where NVML tells it
    kReservedDeviceUsed,
    kDeviceUsedCapacity,
  };
  enum Reason : std::uint8_t {
    kInCall,       // a cache miss: the alloc is recorded just before the segment it made
    kEventsLost,   // the lines are uncertain here
    kThreads,      // counters were read while other threads allocated
    kSamplingLag,  // reserved changed since the sample, or around it
    kCounters,     // the counters contradict each other as they were read
    kExpandable,   // segments that grow by mapping: what is mapped is counted by the driver apart
    kUnexplained,
  };
  static constexpr std::size_t kKept = 5;

  std::int64_t records = 0;
  std::int64_t most_bytes = 0;
  struct Where {
    Instant when;
    std::int64_t lower;  // of the line that should be the lower one
    std::int64_t upper;
  };
  std::vector<Where> first;  // at most kKept
};

class LineGaps {
 public:
  static constexpr std::int64_t kLagNs = 20'000'000;
  static constexpr std::uint32_t kNoThread = UINT32_MAX;

  // The batch's own columns besides `records`; all of its length.
  struct Where {
    const std::int64_t* time_ns;
    const std::int64_t* step;
    const std::int32_t* path;
    std::int64_t first_event;
  };
  using BreakKey = std::pair<OrderBreak::Pair, OrderBreak::Reason>;
  using Extremes = std::array<Extreme, kQuantities>;

  struct Device {
    LinesAt now;
    std::map<std::int32_t, Extremes> paths;  // -1 = no phase
    Extremes run;
    std::map<BreakKey, OrderBreak> breaks;
    // Each time that what lies outside PyTorch was found changed; the first is the baseline.
    struct Outside {
      Instant when;
      Instant before;  // the sample before it: the change lies in between
      LinesAt lines;
    };
    std::vector<Outside> outside;

    struct Sample {
      Instant when;
      std::int64_t used = -1, own = -1, others = -1, capacity = -1;
      LinesAt lines;  // as they were known then
    };
    // An order that is broken, until it shows why.
    struct Held {
      OrderBreak found;
      std::int64_t since_ns = 0;
    };
    Extremes* path_extremes = nullptr;
    std::int32_t path = INT32_MIN;
    Sample sample;          // the last one
    bool settles = false;   // it may still become a reading of what lies outside
    Instant settled;        // the last one that was
    Held in_call;           // active above reserved
    Held lagging[2];        // reserved above own, and above device used, as sampled
    std::int64_t rest = 0;  // what the last reading of `outside` found in use beside reserved
    std::uint32_t thread = kNoThread;  // the only one since the counters were read; 0 = several
    bool counters_were_read = false;
    bool counters_contradict = false;  // active above reserved as they were read last
    // An alloc that missed the cache is compared when its segment is known.
    bool is_postponed = false;
    Instant postponed;
    bool uncertain = false;
    bool is_expandable = false;
  };

  void begin(std::int16_t device, std::int64_t requested, std::int64_t allocated,
             std::int64_t active, std::int64_t reserved);
  void feed(const Columns& records, const Lines& lines, const Where& where);
  // No record of the device comes before `time_ns`: its last sample may be a reading by then.
  void pass_time(std::int16_t device, std::int64_t time_ns);
  // No record follows.
  void finish();

  const std::map<std::int16_t, Device>& devices() const noexcept { return devices_; }

 private:
  Device& device(std::int16_t number);
  void cache_emptied(const Columns& records, std::size_t i, std::int64_t time_ns);

  std::map<std::int16_t, Device> devices_;
  Device* cached_ = nullptr;
  std::int16_t cached_number_ = -1;
};

}  // namespace gpumemtrace::compute
