// The allocator's segments as the events fed so far leave them, told again as events.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "trace/event.h"

namespace gpumemtrace::capture {

class FlightSegments {
 public:
  // kSegmentAlloc, kSegmentFree, kSegmentMap, kSegmentUnmap, kSegmentPool; others do nothing.
  void feed(const Event& event);

  // A kSegmentAlloc or kSegmentMap for each stretch of memory, its kSegmentPool behind it, by
  // address; times are left as they were.
  void tell(std::vector<Event>& out) const;

 private:
  struct Piece {
    Event event;  // address and size: of this piece
    Event pool;   // kind 0: none was told
    std::uint64_t end() const noexcept { return event.address + event.size; }
  };
  using Place = std::pair<std::int16_t, std::uint64_t>;  // device, address
  using Pieces = std::map<Place, Piece>;

  // The first piece that ends behind `at`.
  Pieces::iterator first_behind(std::int16_t device, std::uint64_t at);
  void cut(std::int16_t device, std::uint64_t begin, std::uint64_t end);
  void put(const Event& event, std::uint64_t begin, std::uint64_t end);
  void map_where_free(const Event& event);

  Pieces pieces_;
};

}  // namespace gpumemtrace::capture
