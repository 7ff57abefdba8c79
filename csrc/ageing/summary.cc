#include "ageing/summary.h"

#include <algorithm>

#include "compute/large_segments.h"
#include "compute/rounding.h"

namespace gpumemtrace::ageing {
namespace {

// Where a summary begins: a reader has the true lines there.
bool begins_phase(const Event& event) noexcept {
  return event.kind == Kind::kPhase || event.kind == Kind::kStep || is_baseline(event);
}

constexpr std::uint32_t kNone = UINT32_MAX;

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

void Summary::keep(const std::vector<Record>& records, std::vector<Event>& out) {
  for (const Record& record : records) {
    if (record.device >= 0) levels_[record.device] = record.lines;
    if (record.event.kind == Kind::kPhase) phases_[record.event.thread] = record.event;
    out.push_back(record.event);
  }
}

void Summary::age(const std::vector<Record>& records, bool are_several, std::vector<Event>& out) {
  if (records.empty()) return;
  find_dropped(records);
  steps_ = 1;
  are_several_ = are_several;
  if (!are_several) {
    std::size_t begin = 0;
    for (std::size_t i = 1; i <= records.size(); ++i) {
      if (i < records.size() && !begins_phase(records[i].event)) continue;
      age_phase(records, begin, i, out);
      begin = i;
    }
    return;
  }
  // The mark that begins the next step stays; those inside, and the phases, are left out.
  const bool ends_step = records.back().event.kind == Kind::kStep;
  const std::size_t end = records.size() - (ends_step ? 1 : 0);
  std::uint32_t steps = 0;
  std::uint32_t in_this = 1;  // one that was told as several already
  for (std::size_t i = 0; i < records.size(); ++i) {
    const Event& event = records[i].event;
    if (event.kind == Kind::kAged) in_this = std::max(in_this, event.flags);
    if (event.kind == Kind::kStep) {
      steps += in_this;
      in_this = 1;
    }
    if (i < end && (event.kind == Kind::kStep || event.kind == Kind::kPhase)) is_dropped_[i] = 1;
  }
  steps_ = std::max(steps, 1U);
  close_phases(records.front().event, out);
  age_phase(records, 0, end, out);
  reopen_phases(records.back().event, out);
  if (ends_step) out.push_back(records.back().event);
}

// Blocks whose alloc and free are both here, and what is said of them.
void Summary::find_dropped(const std::vector<Record>& records) {
  is_dropped_.assign(records.size(), 0);
  about_.assign(records.size(), kNone);
  born_ = {};
  for (std::size_t i = 0; i < records.size(); ++i) {
    const Event& event = records[i].event;
    compute::BlockTable<std::uint32_t>::Slot slot;
    switch (event.kind) {
      case Kind::kAlloc:
        if (event.device < 0) break;
        born_.erase(event.address, event.device, &slot);  // its free was lost: both allocs stay
        born_.insert(event.address, event.device, static_cast<std::uint32_t>(i));
        break;
      case Kind::kFree:
        if (born_.erase(event.address, event.device, &slot)) {
          is_dropped_[slot.value] = is_dropped_[i] = 1;
          about_[i] = slot.value;
        }
        break;
      case Kind::kTag:
      case Kind::kRecordStream:
        if (const std::uint32_t* alloc = born_.find(event.address, event.device)) {
          about_[i] = *alloc;
        }
        break;
      default:
        break;
    }
  }
  for (std::size_t i = 0; i < records.size(); ++i) {
    if (about_[i] != kNone && is_dropped_[about_[i]] != 0) is_dropped_[i] = 1;
  }
}

Summary::Part* Summary::part_of(std::int16_t device) {
  const auto found = parts_.find(device);
  return found == parts_.end() ? nullptr : &found->second;
}

// What each device did in records [begin, end).
void Summary::study(const std::vector<Record>& records, std::size_t begin, std::size_t end) {
  parts_.clear();
  for (std::size_t i = begin; i < end; ++i) {
    const Record& record = records[i];
    const Event& event = record.event;
    if (record.device < 0) continue;
    const auto [found, is_new] = parts_.try_emplace(record.device);
    Part& part = found->second;
    if (is_new) part.start = part.highest = levels_[record.device];
    if (record.lines.allocated() > part.highest_allocated) {
      part.highest_allocated = record.lines.allocated();
      part.highest_at = i;
    }
    part.highest.raise_to(record.lines);
    part.end = record.lines;
    part.unsure = record.unsure;
    if (event.kind == Kind::kDeviceUsed) {
      ++part.samples;
      part.last_sample = i;
    } else {
      part.thread = event.thread;
    }
    if (is_left_out_reading(event)) ++part.readings;
    if (event.kind == Kind::kDeviceUsed && event.size >= part.highest_sample_bytes) {
      part.highest_sample = i;
      part.highest_sample_bytes = event.size;
    }
    if (event.kind == Kind::kAged) {
      part.allocs += event.address;
      part.alloc_bytes += event.size;
      part.frees += event.stream;
      part.others += event.extra;
      part.has_dropped = true;
    } else if (is_dropped_[i] != 0) {
      part.has_dropped = true;
      const bool is_alloc = event.kind == Kind::kAlloc;
      part.allocs += is_alloc ? 1 : 0;
      part.alloc_bytes += is_alloc ? event.size : 0;
      part.frees += event.kind == Kind::kFree ? 1 : 0;
      part.others += is_alloc || event.kind == Kind::kFree ? 0 : 1;
    }
  }
  for (std::size_t i = begin; i < end; ++i) {
    const Record& record = records[i];
    if (record.event.kind != Kind::kAlloc || record.device < 0 || is_dropped_[i] != 0) continue;
    Part& part = parts_[record.device];
    std::int64_t(&kept)[2] = i <= part.highest_at ? part.kept_before : part.kept_after;
    kept[0] += static_cast<std::int64_t>(record.event.size);
    kept[1] += record.block_bytes;
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
void Summary::tell_block(const Record& record, Part& part, Event& told) {
  if (told.kind == Kind::kFree) {
    part.told_allocated -= part.last_allocated - record.lines.allocated();
    return;
  }
  const auto size = static_cast<std::int64_t>(told.size);
  part.told_allocated += record.block_bytes;
  // Larger blocks may be more than rounding says, and a reader would look for their segment.
  const bool is_told_by_size = record.block_bytes == compute::rounded(size) &&
                               record.block_bytes <= compute::LargeSegments::kSmallSize;
  told.extra = is_told_by_size ? 0 : static_cast<std::uint64_t>(part.told_allocated);
}

void Summary::age_phase(const std::vector<Record>& records, std::size_t begin, std::size_t end,
                        std::vector<Event>& out) {
  if (begin == end) return;
  const Record& first = records[begin];
  const bool begins_with_mark = begins_phase(first.event);
  if (begins_with_mark && first.device >= 0) levels_[first.device] = first.lines;
  study(records, begin, end);
  std::uint64_t anchor_ns = records[begin].event.time;
  std::uint64_t host_sample_bytes = 0;
  std::size_t host_sample = 0;
  std::size_t last_host_sample = 0;
  for (std::size_t i = begin; i < end; ++i) {
    const Event& event = records[i].event;
    if (event.kind == Kind::kHostUsed) last_host_sample = i;
    if (event.kind == Kind::kHostUsed && event.address >= host_sample_bytes) {
      host_sample = i;
      host_sample_bytes = event.address;
    }
    if (event.kind == Kind::kPhase) phases_[event.thread] = event;
  }
  std::size_t i = begin;
  if (begins_with_mark) {
    if (is_dropped_[begin] == 0) out.push_back(first.event);
    ++i;
  }
  // A reader adds the blocks that stay to what it has: never to more than the peak.
  const auto tell = [&](std::int16_t device, Part& part, const Levels& levels,
                        std::uint32_t thread) {
    out.push_back(stats(levels, device, thread, anchor_ns, part.unsure));
    part.told_allocated = levels.allocated();
  };
  bool is_any_summarised = false;
  for (auto& [device, part] : parts_) {
    if (!part.has_dropped) continue;
    is_any_summarised = true;
    const Levels low = below(part.start, part.highest, part.kept_before);
    if (low != part.start) tell(device, part, low, part.thread);
  }
  for (; i < end; ++i) {
    const Record& record = records[i];
    const Event& event = record.event;
    Part* part = part_of(record.device);
    const bool is_summarised = part != nullptr && part->has_dropped;
    bool is_out = is_dropped_[i] != 0;
    if (event.kind == Kind::kHostUsed) {
      is_out |= is_any_summarised && i != host_sample && i != last_host_sample;
    }
    if (is_summarised) {
      is_out |= event.kind == Kind::kStats || event.kind == Kind::kAged;
      is_out |=
          event.kind == Kind::kDeviceUsed && i != part->highest_sample && i != part->last_sample;
    }
    if (!is_out) {
      out.push_back(event);
      if (is_summarised && (event.kind == Kind::kAlloc || event.kind == Kind::kFree)) {
        out.back().time = anchor_ns;
        tell_block(record, *part, out.back());
      } else {
        anchor_ns = std::max(anchor_ns, event.time);
      }
    }
    if (part != nullptr) part->last_allocated = record.lines.allocated();
    if (is_summarised && part->tells_peak && i == part->highest_at) {
      anchor_ns = std::max(anchor_ns, event.time);
      tell(record.device, *part, part->highest, event.thread);
      const Levels low = below(part->highest, part->highest, part->kept_after);
      if (low != part->highest) tell(record.device, *part, low, event.thread);
    }
  }
  anchor_ns = std::max(anchor_ns, records[end - 1].event.time);
  // That these are several steps has to be said, whatever was left out.
  if (are_several_) parts_.try_emplace(-1).first->second.has_dropped = parts_.size() == 1;
  for (auto& [device, part] : parts_) {
    levels_[device] = part.end;
    if (!part.has_dropped) continue;
    Event aged{};
    aged.time = anchor_ns;
    aged.address = part.allocs;
    aged.size = part.alloc_bytes;
    aged.stream = part.frees;
    aged.extra = part.others;
    aged.thread = part.thread;
    aged.flags = steps_;
    aged.device = device;
    aged.kind = Kind::kAged;
    out.push_back(aged);
    if (device >= 0) out.push_back(stats(part.end, device, part.thread, anchor_ns, part.unsure));
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
