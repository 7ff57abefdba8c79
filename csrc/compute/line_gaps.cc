#include "compute/line_gaps.h"

#include <algorithm>
#include <utility>

namespace gpumemtrace::compute {
namespace {

using Device = LineGaps::Device;
using Pair = OrderBreak::Pair;
using Reason = OrderBreak::Reason;
using Extremes = LineGaps::Extremes;

// A miss is told by the alloc, its segment, perhaps a retry, and the counters.
constexpr std::int64_t kMostRecordsInCall = 8;

// Figures come from a file, so they may be anything; wrapping is defined for unsigned only.
constexpr std::int64_t subtract(std::int64_t a, std::int64_t b) noexcept {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b));
}
constexpr std::int64_t add(std::int64_t a, std::int64_t b) noexcept {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}

void note(OrderBreak& entry, const Instant& when, std::int64_t lower, std::int64_t upper) {
  ++entry.records;
  entry.most_bytes = std::max(entry.most_bytes, subtract(lower, upper));
  if (entry.first.size() < OrderBreak::kKept) entry.first.push_back({when, lower, upper});
}

void settle(Device& state, Device::Held& held, Pair pair, Reason reason) {
  if (held.found.records == 0) return;
  OrderBreak& entry = state.breaks[{pair, reason}];
  entry.records += held.found.records;
  entry.most_bytes = std::max(entry.most_bytes, held.found.most_bytes);
  for (const auto& where : held.found.first) {
    if (entry.first.size() < OrderBreak::kKept) entry.first.push_back(where);
  }
  held = {};
}

void hold(Device::Held& held, const Instant& when, std::int64_t lower, std::int64_t upper) {
  if (held.found.records == 0) held.since_ns = when.time_ns;
  note(held.found, when, lower, upper);
}

Reason unless_expandable(const Device& state) {
  return state.is_expandable ? Reason::kExpandable : Reason::kUnexplained;
}

void settle_lagging(Device& state, Reason reason) {
  settle(state, state.lagging[0], Pair::kReservedOwn, reason);
  settle(state, state.lagging[1], Pair::kReservedDeviceUsed, reason);
}

void raise(Extreme& extreme, std::int64_t value, const Instant& when, const LinesAt& lines) {
  if (!extreme.found || value > extreme.value) extreme = {true, value, when, lines};
}

void lower(Extreme& extreme, std::int64_t value, const Instant& when, const LinesAt& lines) {
  if (!extreme.found || value < extreme.value) extreme = {true, value, when, lines};
}

void compare_after_alloc(Extremes& extremes, const Instant& when, const LinesAt& now) {
  raise(extremes[kRequested], now.requested, when, now);
  raise(extremes[kAllocated], now.allocated, when, now);
  raise(extremes[kActive], now.active, when, now);
  raise(extremes[kRounding], subtract(now.allocated, now.requested), when, now);
}

void compare_free(Extremes& extremes, const Instant& when, const LinesAt& now, std::int64_t free) {
  lower(extremes[kLowestFree], free, when, now);
  const std::int64_t cached = subtract(now.reserved, now.active);
  lower(extremes[kLowestFreeWithCached], add(free, cached), when, now);
}

void compare_used(Extremes& extremes, const Instant& when, const LinesAt& now, std::int64_t used) {
  raise(extremes[kDeviceUsedLine], used, when, now);
  if (now.capacity >= 0) compare_free(extremes, when, now, subtract(now.capacity, used));
}

void compare_all(Extremes& extremes, const Instant& when, const LinesAt& now) {
  compare_after_alloc(extremes, when, now);
  raise(extremes[kReserved], now.reserved, when, now);
  raise(extremes[kPending], subtract(now.active, now.allocated), when, now);
  raise(extremes[kCached], subtract(now.reserved, now.active), when, now);
  if (now.outside != -1) raise(extremes[kOutside], now.outside, when, now);
  if (now.device_used >= 0) compare_used(extremes, when, now, now.device_used);
}

// Reserved was on the move from `began_ns` until now: a sample from then fits neither value.
void doubt_sample(Device& state, std::int64_t began_ns) {
  if (state.sample.used < 0 || state.sample.when.time_ns < began_ns) return;
  state.settles = false;
  settle_lagging(state, Reason::kSamplingLag);
}

void take_counters(Device& state, const Instant& when, std::int64_t reserved_before) {
  LinesAt& now = state.now;
  if (state.in_call.found.records > 0 && now.active <= now.reserved) {
    const bool is_one_call = state.in_call.found.records <= kMostRecordsInCall;
    const Reason reason = is_one_call         ? Reason::kInCall
                          : state.thread == 0 ? Reason::kThreads
                                              : Reason::kUnexplained;
    settle(state, state.in_call, Pair::kActiveReserved, reason);
  }
  settle(state, state.in_call, Pair::kActiveReserved, Reason::kCounters);
  state.counters_contradict = now.active > now.reserved;
  if (now.reserved != reserved_before) {
    doubt_sample(state, subtract(when.time_ns, LineGaps::kLagNs));
    if (!state.outside.empty()) now.device_used = add(state.rest, now.reserved);
  }
  state.counters_were_read = true;
}

// What the sample says of the memory that is not PyTorch's.
void take_outside(Device& state) {
  const Device::Sample& sample = state.sample;
  LinesAt& now = state.now;
  const LinesAt before = now;
  state.rest = subtract(sample.used, sample.lines.reserved);
  now.device_used = add(state.rest, now.reserved);
  const bool knows_own = sample.own >= 0;
  now.outside = subtract(knows_own ? sample.own : sample.used, sample.lines.reserved);
  const std::int64_t rest = knows_own ? subtract(sample.used, sample.own) : -1;
  const bool knows_others = knows_own && sample.others >= 0;
  now.others = knows_others ? sample.others : rest;
  now.unattributed = knows_others ? subtract(rest, sample.others) : -1;
  if (state.outside.empty() || before.outside != now.outside || before.others != now.others ||
      before.unattributed != now.unattributed) {
    LinesAt lines = sample.lines;
    lines.device_used = sample.used;
    lines.outside = now.outside;
    lines.others = now.others;
    lines.unattributed = now.unattributed;
    state.outside.push_back({sample.when, state.settled, lines});
    raise(state.run[kOutside], now.outside, sample.when, lines);
    raise(state.paths[sample.when.path][kOutside], now.outside, sample.when, lines);
  }
  state.settled = sample.when;
  state.settles = false;
}

// Nothing has moved near the sample for long enough.
void let_time_pass(Device& state, std::int64_t time_ns) {
  const bool is_open =
      state.settles || state.lagging[0].found.records > 0 || state.lagging[1].found.records > 0;
  if (!is_open || subtract(time_ns, state.sample.when.time_ns) <= LineGaps::kLagNs) return;
  if (state.settles) take_outside(state);
  settle_lagging(state, unless_expandable(state));
}

void take_sample(Device& state, const Columns& records, std::size_t i, const Instant& when) {
  Device::Sample& sample = state.sample;
  LinesAt& now = state.now;
  const auto own = static_cast<std::int64_t>(records.address[i]);
  const bool knows_others = (records.flags[i] & kOthersKnown) != 0;
  sample.when = when;
  sample.used = records.size[i];
  sample.own = own > 0 ? own : -1;
  sample.others = own > 0 && knows_others ? static_cast<std::int64_t>(records.extra[i]) : -1;
  sample.capacity = static_cast<std::int64_t>(records.stream[i]);
  sample.lines = now;
  now.capacity = sample.capacity > 0 ? sample.capacity : -1;
  state.settles = !state.uncertain;
  if (now.capacity >= 0 && sample.used > now.capacity) {
    note(state.breaks[{Pair::kDeviceUsedCapacity, Reason::kCounters}], when, sample.used,
         now.capacity);
  }
}

void check_order(Device& state, const Instant& when) {
  const bool uncertain = state.uncertain;
  const LinesAt& now = state.now;
  if (now.requested > now.allocated) {
    const Reason reason = uncertain           ? Reason::kEventsLost
                          : state.thread == 0 ? Reason::kThreads
                                              : Reason::kCounters;
    note(state.breaks[{Pair::kRequestedAllocated, reason}], when, now.requested, now.allocated);
  }
  if (now.allocated > now.active) {
    const Reason reason = uncertain ? Reason::kEventsLost : Reason::kCounters;
    note(state.breaks[{Pair::kAllocatedActive, reason}], when, now.allocated, now.active);
  }
  if (state.counters_were_read && now.active > now.reserved) {
    if (uncertain || state.counters_contradict) {
      const Reason reason = uncertain ? Reason::kEventsLost : Reason::kCounters;
      note(state.breaks[{Pair::kActiveReserved, reason}], when, now.active, now.reserved);
    } else {
      hold(state.in_call, when, now.active, now.reserved);
    }
  }
  const Device::Sample& sample = state.sample;
  if (sample.used < 0) return;
  const std::int64_t uppers[2] = {sample.own, sample.used};
  constexpr Pair kPairs[2] = {Pair::kReservedOwn, Pair::kReservedDeviceUsed};
  for (int i = 0; i < 2; ++i) {
    if (uppers[i] < 0 || now.reserved <= uppers[i]) continue;
    if (uncertain) {
      note(state.breaks[{kPairs[i], Reason::kEventsLost}], when, now.reserved, uppers[i]);
    } else if (now.reserved != sample.lines.reserved) {
      note(state.breaks[{kPairs[i], Reason::kSamplingLag}], when, now.reserved, uppers[i]);
    } else {
      hold(state.lagging[i], when, now.reserved, uppers[i]);
    }
  }
}

void compare_postponed(Device& state) {
  state.is_postponed = false;
  for (Extremes* extremes : {&state.run, &state.paths[state.postponed.path]}) {
    if (state.now.active > state.now.reserved) {
      compare_after_alloc(*extremes, state.postponed, state.now);
    } else {
      compare_all(*extremes, state.postponed, state.now);
    }
  }
}

}  // namespace

void LineGaps::begin(std::int16_t number, std::int64_t requested, std::int64_t allocated,
                     std::int64_t active, std::int64_t reserved) {
  Device& state = device(number);
  state.now.requested = requested;
  state.now.allocated = allocated;
  state.now.active = active;
  state.now.reserved = reserved;
  state.counters_were_read = reserved != 0;
}

LineGaps::Device& LineGaps::device(std::int16_t number) {
  if (cached_ == nullptr || cached_number_ != number) {
    cached_ = &devices_[number];
    cached_number_ = number;
  }
  return *cached_;
}

void LineGaps::feed(const Columns& records, const Lines& lines, const Where& where) {
  std::int64_t event = where.first_event;
  for (std::size_t i = 0; i < records.count; ++i) {
    const Kind kind = records.kind_at(i);
    const bool is_event = kind == Kind::kAlloc || kind == Kind::kFree;
    const std::int64_t number = event;
    event += is_event ? 1 : 0;
    if (lines.device[i] < 0) {
      if (kind == Kind::kEmptyCache) cache_emptied(records, i, where.time_ns[i]);
      continue;
    }
    Device& state = device(lines.device[i]);
    const Instant when{where.time_ns[i], number, where.step[i], where.path[i]};
    LinesAt& now = state.now;
    const bool is_new_path = state.path != when.path;
    if (is_new_path) {
      state.path = when.path;
      state.path_extremes = &state.paths[when.path];
      if (!state.uncertain) compare_all(*state.path_extremes, when, now);  // as it begins
    }
    if (state.is_postponed && is_event) {
      compare_postponed(state);
    }
    const std::int64_t reserved_before = now.reserved;
    now.requested = lines.requested[i];
    now.allocated = lines.allocated[i];
    now.active = lines.active[i];
    now.reserved = lines.reserved[i];
    state.uncertain = lines.uncertain[i] != 0;
    if (is_event && state.thread != records.thread[i]) {
      state.thread = state.thread == kNoThread ? records.thread[i] : 0;
    }
    const bool is_driver_call =
        kind == Kind::kSegmentAlloc || kind == Kind::kSegmentMap || kind == Kind::kRetry;
    if (is_driver_call) {
      doubt_sample(state, subtract(when.time_ns, static_cast<std::int64_t>(records.extra[i])));
    }
    let_time_pass(state, when.time_ns);
    switch (kind) {
      case Kind::kStats:
        take_counters(state, when, reserved_before);
        state.thread = kNoThread;
        break;
      case Kind::kDeviceUsed:
        take_sample(state, records, i, when);
        break;
      case Kind::kSegmentMap:
        state.is_expandable = true;
        break;
      default:
        break;
    }
    const bool tells_what_went = kind == Kind::kSegmentFree || kind == Kind::kSegmentUnmap;
    if (!tells_what_went) check_order(state, when);  // as many as there are, one call all the same
    if (state.uncertain) {
      state.is_postponed = false;
      continue;
    }
    if (kind == Kind::kAlloc && now.active > now.reserved) {
      state.is_postponed = true;
      state.postponed = when;
    }
    if (state.is_postponed) {
      if (kind == Kind::kStats) compare_postponed(state);
      continue;
    }
    for (Extremes* extremes : {&state.run, state.path_extremes}) {
      if (kind == Kind::kAlloc) {
        compare_after_alloc(*extremes, when, now);
      } else if (kind == Kind::kFree) {
        raise((*extremes)[kCached], subtract(now.reserved, now.active), when, now);
      } else {
        compare_all(*extremes, when, now);
        if (kind == Kind::kDeviceUsed) compare_used(*extremes, when, now, state.sample.used);
        if (kind == Kind::kAllocFailed && records.extra[i] != 0) {  // as the driver said right then
          compare_free(*extremes, when, now, static_cast<std::int64_t>(records.extra[i]));
        }
      }
    }
  }
}

void LineGaps::pass_time(std::int16_t number, std::int64_t time_ns) {
  const auto found = devices_.find(number);
  if (found != devices_.end()) let_time_pass(found->second, time_ns);
}

void LineGaps::cache_emptied(const Columns& records, std::size_t i, std::int64_t time_ns) {
  for (auto& [number, state] : devices_) {
    doubt_sample(state, subtract(time_ns, static_cast<std::int64_t>(records.extra[i])));
  }
}

void LineGaps::finish() {
  for (auto& [number, state] : devices_) {
    if (state.settles) take_outside(state);
    settle_lagging(state, unless_expandable(state));
    settle(state, state.in_call, Pair::kActiveReserved, Reason::kUnexplained);
    if (state.is_postponed) compare_postponed(state);
  }
}

}  // namespace gpumemtrace::compute
