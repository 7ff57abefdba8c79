#include "ageing/summary.h"

#include <algorithm>

#include "compute/large_segments.h"
#include "compute/rounding.h"

namespace gpumemtrace::ageing {
namespace {

// Where a summary begins: a reader has the true lines there.
bool begins_phase(const Rows& rows, std::size_t i) noexcept {
  const Kind kind = rows.kind(i);
  if (kind == Kind::kPhase || kind == Kind::kStep) return true;
  return kind == Kind::kStats && is_baseline(rows.event(i));
}

bool is_left_out_reading(const Event& event) noexcept {
  return event.kind == Kind::kStats && !is_baseline(event) &&
         event.flags != static_cast<std::uint32_t>(StatsCause::kAged) &&
         event.flags != static_cast<std::uint32_t>(StatsCause::kAgedUnsure);
}

Event stats(const Levels& levels, std::int16_t device, std::uint32_t thread, std::uint64_t time,
            bool unsure) {
  Event event{};
  event.time = time;
  event.address = static_cast<std::uint64_t>(levels.allocated());
  event.size = static_cast<std::uint64_t>(levels.requested());
  event.stream = static_cast<std::uint64_t>(levels.active());
  event.extra = static_cast<std::uint64_t>(levels.reserved());
  event.thread = thread;
  event.flags = static_cast<std::uint32_t>(unsure ? StatsCause::kAgedUnsure : StatsCause::kAged);
  event.device = device;
  event.kind = Kind::kStats;
  return event;
}

// `highest` less what blocks that stay will add to it; `start` where that is lower.
Levels below(const Levels& start, const Levels& highest, const std::int64_t (&kept)[2]) {
  Levels low = start;
  low.bytes[0] = std::min(low.bytes[0], highest.bytes[0] - kept[0]);
  low.bytes[1] = std::min(low.bytes[1], highest.bytes[1] - kept[1]);
  low.bytes[2] = std::min(low.bytes[2], highest.bytes[2] - kept[1]);
  // Active is told as allocated and what waits beside it.
  low.bytes[2] = std::max(low.bytes[2], low.bytes[1]);
  return low;
}

}  // namespace

void Summary::keep(const Rows& rows, std::vector<Event>& out) {
  Levels* last = nullptr;
  std::int16_t last_device = -1;
  for (std::size_t i = 0; i < rows.count; ++i) {
    out.push_back(rows.event(i));
    if (rows.kind(i) == Kind::kPhase) phases_[out.back().thread] = out.back();
    const std::int16_t device = rows.of_device[i];
    if (device < 0) continue;
    if (device != last_device) last = &levels_[device];
    last_device = device;
    *last = rows.levels(i);
  }
}

void Summary::age(const Rows& rows, bool are_several, std::vector<Event>& out) {
  if (rows.count == 0) return;
  find_dropped(rows);
  steps_ = 1;
  are_several_ = are_several;
  if (!are_several) {
    std::size_t begin = 0;
    for (std::size_t i = 1; i <= rows.count; ++i) {
      if (i < rows.count && !begins_phase(rows, i)) continue;
      age_phase(rows, begin, i, out);
      begin = i;
    }
    return;
  }
  // The mark that begins the next step stays; those inside, and the phases, are left out.
  const bool ends_step = rows.kind(rows.count - 1) == Kind::kStep;
  const std::size_t end = rows.count - (ends_step ? 1 : 0);
  std::uint32_t steps = 0;
  std::uint32_t in_this = 1;  // one that was told as several already
  for (std::size_t i = 0; i < rows.count; ++i) {
    const Kind kind = rows.kind(i);
    if (kind == Kind::kAged) in_this = std::max(in_this, rows.events.flags[i]);
    if (kind == Kind::kStep) {
      steps += in_this;
      in_this = 1;
    }
    if (i < end && (kind == Kind::kStep || kind == Kind::kPhase)) is_dropped_[i] = 1;
  }
  steps_ = std::max(steps, 1U);
  close_phases(rows.event(0), out);
  age_phase(rows, 0, end, out);
  const Event last = rows.event(rows.count - 1);
  reopen_phases(last, out);
  if (ends_step) out.push_back(last);
}

// Blocks whose alloc and free are both here, and what is said of them. An alloc whose free was lost
// stays.
void Summary::find_dropped(const Rows& rows) {
  is_dropped_.assign(rows.count, 0);
  bool are_others = false;
  for (std::size_t i = 0; i < rows.count; ++i) {
    const Kind kind = rows.kind(i);
    are_others |= kind == Kind::kTag || kind == Kind::kRecordStream;
    if (kind != Kind::kFree) continue;
    const std::size_t alloc = rows.alloc_of(i);
    if (alloc != SIZE_MAX) is_dropped_[alloc] = is_dropped_[i] = 1;
  }
  for (std::size_t i = 0; are_others && i < rows.count; ++i) {
    if (rows.kind(i) != Kind::kTag && rows.kind(i) != Kind::kRecordStream) continue;
    const std::size_t alloc = rows.alloc_of(i);
    if (alloc != SIZE_MAX) is_dropped_[i] = is_dropped_[alloc];
  }
}

Summary::Part* Summary::part_of(std::int16_t device) {
  const auto found = parts_.find(device);
  return found == parts_.end() ? nullptr : &found->second;
}

// What each device did in records [begin, end).
void Summary::study(const Rows& rows, std::size_t begin, std::size_t end) {
  parts_.clear();
  Part* part = nullptr;
  std::int16_t last_device = -1;
  for (std::size_t i = begin; i < end; ++i) {
    const std::int16_t device = rows.of_device[i];
    if (device < 0) continue;
    if (device != last_device) {
      const auto [found, is_new] = parts_.try_emplace(device);
      part = &found->second;
      if (is_new) part->start = part->highest = levels_[device];
      last_device = device;
    }
    const Levels levels = rows.levels(i);
    if (levels.allocated() > part->highest_allocated) {
      part->highest_allocated = levels.allocated();
      part->highest_at = i;
    }
    part->highest.raise_to(levels);
    part->end = levels;
    part->unsure = rows.unsure[i] != 0;
    const Kind kind = rows.kind(i);
    const std::uint64_t size = rows.events.size_bytes[i];
    if (kind != Kind::kDeviceUsed) part->thread = rows.events.thread[i];
    if (kind == Kind::kAlloc || kind == Kind::kFree) {
      if (is_dropped_[i] == 0) continue;
      part->has_dropped = true;
      part->allocs += kind == Kind::kAlloc ? 1 : 0;
      part->alloc_bytes += kind == Kind::kAlloc ? size : 0;
      part->frees += kind == Kind::kFree ? 1 : 0;
      continue;
    }
    if (kind == Kind::kDeviceUsed) {
      ++part->samples;
      part->last_sample = i;
      if (size >= part->highest_sample_bytes) {
        part->highest_sample = i;
        part->highest_sample_bytes = size;
      }
    } else if (kind == Kind::kStats) {
      part->readings += is_left_out_reading(rows.event(i)) ? 1 : 0;
    } else if (kind == Kind::kAged) {
      part->allocs += rows.events.address[i];
      part->alloc_bytes += size;
      part->frees += rows.events.stream[i];
      part->others += rows.events.extra[i];
      part->has_dropped = true;
      continue;
    }
    if (is_dropped_[i] == 0) continue;
    part->has_dropped = true;
    ++part->others;
  }
  study_kept(rows, begin, end);
}

void Summary::study_kept(const Rows& rows, std::size_t begin, std::size_t end) {
  for (std::size_t i = begin; i < end; ++i) {
    if (is_dropped_[i] != 0 || rows.kind(i) != Kind::kAlloc || rows.of_device[i] < 0) continue;
    Part& part = parts_[rows.of_device[i]];
    std::int64_t(&kept)[2] = i <= part.highest_at ? part.kept_before : part.kept_after;
    kept[0] += static_cast<std::int64_t>(rows.events.size_bytes[i]);
    kept[1] += rows.block_bytes[i];
  }
  for (auto& [device, part] : parts_) {
    part.last_allocated = part.told_allocated = part.start.allocated();
    part.has_dropped |= are_several_;
    if (part.has_dropped) {
      const std::uint64_t kept = part.highest_sample == part.last_sample ? 1 : 2;
      part.others += part.readings + part.samples - std::min(part.samples, kept);
    }
    Levels without = part.start;
    without.raise_to(part.end);
    part.tells_peak = without != part.highest;
    if (part.tells_peak) continue;
    part.highest_at = SIZE_MAX;
    part.kept_before[0] += part.kept_after[0];
    part.kept_before[1] += part.kept_after[1];
  }
}

// A reader takes what the allocator's counter has grown by as the size of a block.
void Summary::tell_block(const Rows& rows, std::size_t i, Part& part, Event& told) {
  if (told.kind == Kind::kFree) {
    part.told_allocated -= part.last_allocated - rows.allocated(i);
    return;
  }
  const auto size = static_cast<std::int64_t>(told.size);
  const std::int64_t block_bytes = rows.block_bytes[i];
  part.told_allocated += block_bytes;
  // Larger blocks may be more than rounding says, and a reader would look for their segment.
  const bool is_told_by_size =
      block_bytes == compute::rounded(size) && block_bytes <= compute::LargeSegments::kSmallSize;
  told.extra = is_told_by_size ? 0 : static_cast<std::uint64_t>(part.told_allocated);
}

void Summary::age_phase(const Rows& rows, std::size_t begin, std::size_t end,
                        std::vector<Event>& out) {
  if (begin == end) return;
  const Event first = rows.event(begin);
  const bool begins_with_mark = begins_phase(rows, begin);
  if (begins_with_mark && rows.of_device[begin] >= 0) {
    levels_[rows.of_device[begin]] = rows.levels(begin);
  }
  study(rows, begin, end);
  std::uint64_t anchor_ns = first.time;
  std::uint64_t host_sample_bytes = 0;
  std::size_t host_sample = 0;
  std::size_t last_host_sample = 0;
  for (std::size_t i = begin; i < end; ++i) {
    const Kind kind = rows.kind(i);
    if (kind == Kind::kHostUsed) {
      last_host_sample = i;
      if (rows.events.address[i] >= host_sample_bytes) host_sample = i;
      host_sample_bytes = std::max(host_sample_bytes, rows.events.address[i]);
    }
    if (kind == Kind::kPhase) phases_[rows.events.thread[i]] = rows.event(i);
  }
  std::size_t i = begin;
  if (begins_with_mark) {
    if (is_dropped_[begin] == 0) out.push_back(first);
    ++i;
  }
  // A reader adds the blocks that stay to what it has: never to more than the peak.
  const auto tell = [&](std::int16_t device, Part& part, const Levels& levels,
                        std::uint32_t thread) {
    out.push_back(stats(levels, device, thread, anchor_ns, part.unsure));
    part.told_allocated = levels.allocated();
  };
  bool is_any_summarised = false;
  for (auto& [device, its] : parts_) {
    if (!its.has_dropped) continue;
    is_any_summarised = true;
    const Levels low = below(its.start, its.highest, its.kept_before);
    if (low != its.start) tell(device, its, low, its.thread);
  }
  Part* part = nullptr;
  std::int16_t part_device = -1;
  for (; i < end; ++i) {
    if (rows.of_device[i] != part_device) {
      part_device = rows.of_device[i];
      part = part_of(part_device);
    }
    const bool is_summarised = part != nullptr && part->has_dropped;
    if (is_dropped_[i] == 0) {
      const Kind kind = rows.kind(i);
      bool is_out =
          kind == Kind::kHostUsed && is_any_summarised && i != host_sample && i != last_host_sample;
      if (is_summarised) {
        is_out |= kind == Kind::kStats || kind == Kind::kAged;
        is_out |= kind == Kind::kDeviceUsed && i != part->highest_sample && i != part->last_sample;
      }
      if (!is_out) {
        out.push_back(rows.event(i));
        Event& told = out.back();
        if (is_summarised && (kind == Kind::kAlloc || kind == Kind::kFree)) {
          told.time = anchor_ns;
          tell_block(rows, i, *part, told);
        } else {
          anchor_ns = std::max(anchor_ns, told.time);
        }
      }
    }
    if (part == nullptr) continue;
    part->last_allocated = rows.allocated(i);
    if (is_summarised && part->tells_peak && i == part->highest_at) {
      anchor_ns = std::max(anchor_ns, static_cast<std::uint64_t>(rows.events.time_ns[i]));
      const std::uint32_t thread = rows.events.thread[i];
      tell(part_device, *part, part->highest, thread);
      const Levels low = below(part->highest, part->highest, part->kept_after);
      if (low != part->highest) tell(part_device, *part, low, thread);
    }
  }
  anchor_ns = std::max(anchor_ns, static_cast<std::uint64_t>(rows.events.time_ns[end - 1]));
  // That these are several steps has to be said, whatever was left out.
  if (are_several_) parts_.try_emplace(-1).first->second.has_dropped = parts_.size() == 1;
  for (auto& [device, its] : parts_) {
    levels_[device] = its.end;
    if (!its.has_dropped) continue;
    Event aged{};
    aged.time = anchor_ns;
    aged.address = its.allocs;
    aged.size = its.alloc_bytes;
    aged.stream = its.frees;
    aged.extra = its.others;
    aged.thread = its.thread;
    aged.flags = steps_;
    aged.device = device;
    aged.kind = Kind::kAged;
    out.push_back(aged);
    if (device >= 0) out.push_back(stats(its.end, device, its.thread, anchor_ns, its.unsure));
  }
}

void Summary::close_phases(const Event& at, std::vector<Event>& out) {
  for (const auto& [thread, mark] : phases_) {
    if (mark.size == 0) continue;
    Event event = mark;
    event.time = at.time;
    event.size = 0;
    event.flags = 0;
    out.push_back(event);
  }
}

void Summary::reopen_phases(const Event& at, std::vector<Event>& out) {
  for (const auto& [thread, mark] : phases_) {
    if (mark.size == 0) continue;
    Event event = mark;
    event.time = at.time;
    event.flags &= ~static_cast<std::uint32_t>(kPhaseEntered);
    out.push_back(event);
  }
}

}  // namespace gpumemtrace::ageing
