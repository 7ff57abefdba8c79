#include "torch/segment_table.h"

#include <algorithm>
#include <iterator>

#include "capture/producer.h"

namespace gpumemtrace::hook {
namespace {

static_assert(capture::kMaxDevices == 16);

bool is_known_device(int device) noexcept { return device >= 0 && device < 16; }

Event gone_event(const KnownSegment& segment, std::uintptr_t begin, std::uintptr_t end) noexcept {
  Event event{};
  event.kind = segment.is_expandable ? Kind::kSegmentUnmap : Kind::kSegmentFree;
  event.address = begin;
  event.size = end - begin;
  event.device = segment.device;
  return event;
}

bool is_same(const KnownSegment& a, const KnownSegment& b) noexcept {
  return a.address == b.address && a.size == b.size && a.stream == b.stream;
}

// What of `segment` lies in none of `others`, as [begin, end) in turn.
template <class Others, class Visit>
void for_each_rest(const KnownSegment& segment, const Others& others, Visit visit) {
  std::uintptr_t at = segment.address;
  const std::uintptr_t end = segment.address + segment.size;
  auto next = others.upper_bound(at);
  if (next != others.begin()) next = std::prev(next);
  for (; next != others.end() && next->first < end; ++next) {
    const std::uintptr_t its_end = next->first + next->second.size;
    if (its_end <= at) continue;
    if (next->first > at) visit(at, next->first);
    at = std::max(at, its_end);
  }
  if (at < end) visit(at, end);
}

}  // namespace

Event segment_event(const KnownSegment& segment) noexcept {
  Event event{};
  event.kind = segment.is_expandable ? Kind::kSegmentMap : Kind::kSegmentAlloc;
  event.address = segment.address;
  event.size = segment.size;
  event.stream = segment.stream;
  event.device = segment.device;
  event.flags = segment.is_large ? kSegmentLarge : kSegmentSmall;
  return event;
}

void SegmentTable::clear() noexcept {
  const std::lock_guard lock(mutex_);
  for (Device& device : devices_) device = {};
}

std::size_t SegmentTable::reserved(int device) const noexcept {
  if (!is_known_device(device)) return 0;
  const std::lock_guard lock(mutex_);
  return devices_[static_cast<std::size_t>(device)].reserved;
}

void SegmentTable::add(const KnownSegment& segment) noexcept {
  if (!is_known_device(segment.device)) return;
  const std::lock_guard lock(mutex_);
  try {
    place(devices_[static_cast<std::size_t>(segment.device)], segment);
  } catch (...) {  // out of host memory: the sums differ, and the next snapshot heals it
  }
}

void SegmentTable::place(Device& device, const KnownSegment& segment) {
  const auto [entry, is_new] = device.segments.try_emplace(segment.address, segment);
  if (!is_new) {
    device.reserved -= entry->second.size;
    entry->second = segment;
  }
  device.reserved += segment.size;
}

std::vector<KnownSegment> SegmentTable::map(const KnownSegment& segment,
                                            std::size_t bytes) noexcept {
  std::vector<KnownSegment> pieces;
  if (!is_known_device(segment.device)) return pieces;
  const std::lock_guard lock(mutex_);
  Device& device = devices_[static_cast<std::size_t>(segment.device)];
  try {
    std::uintptr_t at = segment.address;
    while (bytes > 0) {
      const auto after = device.segments.upper_bound(at);
      if (after != device.segments.begin()) {
        const KnownSegment& before = std::prev(after)->second;
        if (at - before.address < before.size) {
          at = before.address + before.size;
          continue;
        }
      }
      const std::size_t gap = after == device.segments.end() ? bytes : after->first - at;
      KnownSegment piece = segment;
      piece.address = at;
      piece.size = std::min(bytes, gap);
      place(device, piece);
      pieces.push_back(piece);
      at += piece.size;
      bytes -= piece.size;
    }
  } catch (...) {
  }
  return pieces;
}

std::vector<Event> SegmentTable::reconcile(int number,
                                           const std::vector<KnownSegment>& now) noexcept {
  std::vector<Event> events;
  if (!is_known_device(number)) return events;
  const std::lock_guard lock(mutex_);
  Device& device = devices_[static_cast<std::size_t>(number)];
  try {
    Device fresh;
    for (const KnownSegment& segment : now) {
      if (segment.device == number) place(fresh, segment);
    }
    for (const auto& [address, old] : device.segments) {
      if (!old.is_expandable) {
        const auto same = fresh.segments.find(address);
        if (same == fresh.segments.end() || !is_same(same->second, old)) {
          events.push_back(gone_event(old, address, address + old.size));
        }
        continue;
      }
      for_each_rest(old, fresh.segments, [&](std::uintptr_t begin, std::uintptr_t end) {
        events.push_back(gone_event(old, begin, end));
      });
    }
    for (const auto& [address, segment] : fresh.segments) {
      if (!segment.is_expandable) {
        const auto same = device.segments.find(address);
        if (same == device.segments.end() || !is_same(same->second, segment)) {
          events.push_back(segment_event(segment));
        }
        continue;
      }
      const KnownSegment& whole = segment;
      for_each_rest(whole, device.segments, [&](std::uintptr_t begin, std::uintptr_t end) {
        KnownSegment piece = whole;
        piece.address = begin;
        piece.size = end - begin;
        events.push_back(segment_event(piece));
      });
    }
    device = std::move(fresh);
  } catch (...) {
    events.clear();
  }
  return events;
}

}  // namespace gpumemtrace::hook
