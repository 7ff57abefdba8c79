// The segments that the trace has been told of, to tell what has gone since.
//
// The allocator says nothing when it gives memory back to the driver. So when its reserved bytes
// are not the sum of these, a snapshot is taken and the differences become events.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "torch/block_snapshot.h"
#include "trace/event.h"

namespace gpumemtrace::hook {

// Any thread. No lock is held while anything else is called.
class SegmentTable {
 public:
  // Nothing is known; a session begins.
  void clear() noexcept;
  // A new segment.
  void add(const KnownSegment& segment) noexcept;
  // `bytes` more of an expandable segment, from `segment.address` on, wherever nothing is mapped yet.
  // Returns the pieces; `segment.size` is not looked at.
  std::vector<KnownSegment> map(const KnownSegment& segment, std::size_t bytes) noexcept;
  // The sum of a device's.
  std::size_t reserved(int device) const noexcept;
  // Takes `now` as what this device holds: returns the events that lead there, those of memory that
  // has gone first.
  std::vector<Event> reconcile(int device, const std::vector<KnownSegment>& now) noexcept;

 private:
  using Segments = std::map<std::uintptr_t, KnownSegment>;  // by address
  struct Device {
    Segments segments;
    std::size_t reserved = 0;
  };

  void place(Device& device, const KnownSegment& segment);

  mutable std::mutex mutex_;
  std::array<Device, 16> devices_;
};

// The event that tells of a segment: kSegmentAlloc, or kSegmentMap for an expandable one.
Event segment_event(const KnownSegment& segment) noexcept;

}  // namespace gpumemtrace::hook
