#include "capture/flight_baseline.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "capture/json.h"

namespace gpumemtrace::capture {
namespace {

constexpr std::string_view kLineNames[] = {"requested", "allocated", "active", "reserved"};
constexpr std::size_t kFewNotes = 4096;

Event event_at(const EventColumns& columns, std::size_t i) {
  return {static_cast<std::uint64_t>(columns.time_ns[i]),
          columns.address[i],
          columns.size_bytes[i],
          columns.stream[i],
          columns.extra[i],
          columns.thread[i],
          columns.site[i],
          columns.flags[i],
          columns.device[i],
          static_cast<Kind>(columns.kind[i])};
}

}  // namespace

void FlightBaseline::feed(const EventColumns& events, std::size_t count) {
  if (count == 0) return;
  line_device_.resize(count);
  for (auto& line : line_bytes_) line.resize(count);
  line_uncertain_.resize(count);
  const compute::Columns records{count,
                                 events.kind,
                                 events.device,
                                 events.thread,
                                 events.flags,
                                 events.address,
                                 reinterpret_cast<const std::int64_t*>(events.size_bytes),
                                 events.stream,
                                 events.extra};
  const compute::Lines lines{line_device_.data(),   line_bytes_[0].data(), line_bytes_[1].data(),
                             line_bytes_[2].data(), line_bytes_[3].data(), line_uncertain_.data()};
  fed_ = &events;
  lines_.feed(records, lines, this);
  Device* device = nullptr;
  for (std::size_t i = 0; i < count; ++i, ++events_) {
    if (i == 0 || line_device_[i] != line_device_[i - 1]) device = &devices_[line_device_[i]];
    for (std::size_t line = 0; line < kLines; ++line) {
      device->peak_bytes[line] = std::max(device->peak_bytes[line], line_bytes_[line][i]);
    }
    const Kind kind = records.kind_at(i);
    if (kind != Kind::kAlloc && kind != Kind::kFree && kind != Kind::kStats) {
      feed_rare(event_at(events, i));
    }
  }
  last_time_ns_ = events.time_ns[count - 1];
}

void FlightBaseline::feed_rare(const Event& event) {
  segments_.feed(event);
  switch (event.kind) {
    case Kind::kDeviceUsed: {
      Device& device = devices_[event.device];
      device.used = event;
      device.device_used_peak_bytes = std::max(device.device_used_peak_bytes, event.size);
      break;
    }
    case Kind::kHostUsed:
      host_used_ = event;
      break;
    case Kind::kAllocFailed:
      ++ooms_;
      break;
    case Kind::kRetry:
      ++retries_;
      break;
    case Kind::kGap:
      dropped_ += event.address;
      break;
    case Kind::kPoolBegin:
      open_pools_.push_back(event);
      break;
    case Kind::kPoolEnd: {
      const auto same = [&](const Event& open) {
        return open.device == event.device && open.address == event.address &&
               open.size == event.size;
      };
      const auto last = std::find_if(open_pools_.rbegin(), open_pools_.rend(), same);
      if (last != open_pools_.rend()) open_pools_.erase(std::next(last).base());
      break;
    }
    case Kind::kPhase:
      enter_phase(event);
      break;
    case Kind::kStep:
      step_ = event;
      break;
    case Kind::kTag:
    case Kind::kRecordStream:
      note(event);
      break;
    default:
      break;
  }
}

// By the rules of compute/marks.h.
void FlightBaseline::enter_phase(const Event& event) {
  if ((event.flags & kPhaseProcessWide) != 0) {
    process_wide_thread_ = event.size != 0 ? event.thread : 0;
  } else if (process_wide_thread_ == event.thread) {
    process_wide_thread_ = 0;
  }
  if (event.size == 0) {
    phases_.erase(event.thread);
  } else {
    phases_[event.thread] = event;
  }
}

std::uint32_t FlightBaseline::born(const compute::Columns& /*records*/, std::size_t i,
                                   std::int64_t /*number*/, std::int64_t allocated) {
  const Live live{event_at(*fed_, i), allocated, events_ + i};
  if (free_places_.empty()) {
    live_.push_back(live);
    return static_cast<std::uint32_t>(live_.size() - 1);
  }
  const std::uint32_t place = free_places_.back();
  free_places_.pop_back();
  live_[place] = live;
  return place;
}

void FlightBaseline::resized(std::uint32_t block, std::int64_t allocated) {
  live_[block].allocated = allocated;
}

void FlightBaseline::died(std::uint32_t block, std::size_t /*i*/) {
  live_[block].event.kind = Kind{};
  free_places_.push_back(block);
}

void FlightBaseline::note(const Event& event) {
  notes_.push_back({event, events_});
  if (notes_.size() >= 2 * notes_kept_ + kFewNotes) drop_dead_notes();
}

std::vector<const FlightBaseline::Live*> FlightBaseline::live_by_address() const {
  std::vector<const Live*> live;
  for (const Live& block : live_) {
    if (block.event.kind != Kind{}) live.push_back(&block);
  }
  std::sort(live.begin(), live.end(), [](const Live* a, const Live* b) {
    return std::pair(a->event.device, a->event.address) <
           std::pair(b->event.device, b->event.address);
  });
  return live;
}

// A note is about a block that holds its address now and was there when it was made. (While a batch
// is fed, the blocks are ahead of the notes: then it goes as it would at the batch's end.)
void FlightBaseline::drop_dead_notes() {
  std::vector<const Live*> by_address = live_by_address();
  std::sort(by_address.begin(), by_address.end(),
            [](const Live* a, const Live* b) { return a->event.address < b->event.address; });
  std::erase_if(notes_, [&](const Note& note) {
    auto behind = std::upper_bound(
        by_address.begin(), by_address.end(), note.event.address,
        [](std::uint64_t address, const Live* block) { return address < block->event.address; });
    // More than one device may have the address; unified addressing makes that rare.
    while (behind != by_address.begin()) {
      const Live& block = **--behind;
      const bool holds =
          note.event.address - block.event.address < std::max<std::uint64_t>(block.event.size, 1);
      if (!holds) return true;
      if (note.event.device < 0 || note.event.device == block.event.device) {
        return block.born > note.number;
      }
    }
    return true;
  });
  notes_kept_ = notes_.size();
}

std::vector<Event> FlightBaseline::tell() {
  std::vector<Event> out;
  if (events_ == 0) return out;
  if (step_.kind != Kind{}) {
    out.push_back(step_);
    out.back().flags = kStepSet | kStepInside;
  }
  segments_.tell(out);
  tell_blocks(out);
  tell_counters(out);
  drop_dead_notes();
  for (const Note& note : notes_) out.push_back(note.event);
  out.insert(out.end(), open_pools_.begin(), open_pools_.end());
  for (const auto& [number, device] : devices_) {
    if (device.used.kind != Kind{}) out.push_back(device.used);
  }
  if (host_used_.kind != Kind{}) out.push_back(host_used_);
  tell_phases(out);
  for (Event& event : out) event.time = static_cast<std::uint64_t>(last_time_ns_);
  return out;
}

// The reader takes the growth of the counter as the block's size.
void FlightBaseline::tell_blocks(std::vector<Event>& out) const {
  std::map<std::int16_t, std::int64_t> allocated;
  for (const Live* block : live_by_address()) {
    out.push_back(block->event);
    auto& sum = allocated[block->event.device];
    sum += block->allocated;
    out.back().extra = static_cast<std::uint64_t>(sum);
  }
}

void FlightBaseline::tell_counters(std::vector<Event>& out) const {
  for (const auto& [number, device] : lines_.devices()) {
    Event event{};
    event.device = number;
    if (device.has_stats) {
      event.kind = Kind::kStats;
      event.address = static_cast<std::uint64_t>(device.allocated);
      event.size = static_cast<std::uint64_t>(device.requested);
      event.stream = event.address + static_cast<std::uint64_t>(device.pending);
      event.extra = static_cast<std::uint64_t>(device.reserved);
      event.flags = static_cast<std::uint32_t>(StatsCause::kBaseline);
      out.push_back(event);
    }
    if (device.uncertain) {
      Event gap{};
      gap.kind = Kind::kGap;
      gap.device = number;
      out.push_back(gap);
    }
  }
}

void FlightBaseline::tell_phases(std::vector<Event>& out) const {
  const auto tell = [&](Event event, std::uint32_t flags) {
    event.flags = flags;  // not entered here
    out.push_back(event);
  };
  for (const auto& [thread, event] : phases_) {
    if (thread != process_wide_thread_) tell(event, 0);
  }
  const auto wide = phases_.find(process_wide_thread_);
  if (process_wide_thread_ != 0 && wide != phases_.end()) tell(wide->second, kPhaseProcessWide);
}

std::string FlightBaseline::to_json() const {
  std::string peaks;
  for (const auto& [number, device] : devices_) {
    if (number < 0) continue;
    JsonObject bytes;
    for (std::size_t line = 0; line < kLines; ++line) {
      bytes.add(kLineNames[line], static_cast<std::uint64_t>(device.peak_bytes[line]));
    }
    if (device.used.kind != Kind{}) bytes.add("device_used", device.device_used_peak_bytes);
    if (!peaks.empty()) peaks += ',';
    peaks += JsonObject()
                 .add("device", static_cast<std::uint64_t>(number))
                 .add_raw("peak_bytes", bytes.text())
                 .text();
  }
  return JsonObject()
      .add("events", events_)
      .add("dropped", dropped_)
      .add("ooms", ooms_)
      .add("retries", retries_)
      .add_raw("devices", '[' + peaks + ']')
      .text();
}

}  // namespace gpumemtrace::capture
