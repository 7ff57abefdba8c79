#include "capture/flight_segments.h"

#include <algorithm>

namespace gpumemtrace::capture {

void FlightSegments::feed(const Event& event) {
  const std::uint64_t end = event.address + event.size;
  if (event.kind == Kind::kSegmentPool) {
    const auto piece = first_behind(event.device, event.address);
    if (piece != pieces_.end() && piece->first.first == event.device &&
        piece->second.event.address <= event.address) {
      piece->second.pool = event;
    }
    return;
  }
  if (end <= event.address) return;  // nothing, or no range
  switch (event.kind) {
    case Kind::kSegmentAlloc:
      cut(event.device, event.address, end);
      put(event, event.address, end);
      break;
    case Kind::kSegmentMap:
      map_where_free(event);
      break;
    case Kind::kSegmentFree:
    case Kind::kSegmentUnmap:
      cut(event.device, event.address, end);
      break;
    default:
      break;
  }
}

FlightSegments::Pieces::iterator FlightSegments::first_behind(std::int16_t device,
                                                              std::uint64_t at) {
  auto piece = pieces_.upper_bound({device, at});
  if (piece != pieces_.begin()) {
    const auto before = std::prev(piece);
    if (before->first.first == device && before->second.end() > at) return before;
  }
  return piece;
}

void FlightSegments::cut(std::int16_t device, std::uint64_t begin, std::uint64_t end) {
  auto piece = first_behind(device, begin);
  while (piece != pieces_.end() && piece->first.first == device && piece->first.second < end) {
    const Piece old = piece->second;
    piece = pieces_.erase(piece);
    const auto keep = [&](std::uint64_t from, std::uint64_t to) {
      Piece& kept = pieces_[{device, from}];
      kept = old;
      kept.event.address = from;
      kept.event.size = to - from;
    };
    if (old.event.address < begin) keep(old.event.address, begin);
    if (old.end() > end) keep(end, old.end());
  }
}

void FlightSegments::put(const Event& event, std::uint64_t begin, std::uint64_t end) {
  Piece& piece = pieces_[{event.device, begin}];
  piece = {};
  piece.event = event;
  piece.event.address = begin;
  piece.event.size = end - begin;
}

// As many bytes from the address on, wherever nothing is (event.h).
void FlightSegments::map_where_free(const Event& event) {
  std::uint64_t at = event.address;
  for (std::uint64_t left = event.size; left > 0;) {
    const auto next = first_behind(event.device, at);
    const bool is_near = next != pieces_.end() && next->first.first == event.device;
    if (is_near && next->second.event.address <= at) {
      at = next->second.end();
      continue;
    }
    const std::uint64_t room = is_near ? next->second.event.address - at : left;
    const std::uint64_t size = std::min(left, room);
    put(event, at, at + size);
    at += size;
    left -= size;
  }
}

void FlightSegments::tell(std::vector<Event>& out) const {
  for (const auto& [place, piece] : pieces_) {
    out.push_back(piece.event);
    out.back().extra = 0;  // the driver's time was spent then
    if (piece.pool.kind != Kind{}) {
      out.push_back(piece.pool);
      out.back().address = piece.event.address;
    }
  }
}

}  // namespace gpumemtrace::capture
