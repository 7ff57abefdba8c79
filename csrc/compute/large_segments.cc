#include "compute/large_segments.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace gpumemtrace::compute {
namespace {

using Addresses = std::vector<std::uint64_t>;

// Returns the address behind the new one, or `end`.
std::uint64_t insert(Addresses& addresses, std::uint64_t address, std::uint64_t end) {
  const auto next = std::upper_bound(addresses.begin(), addresses.end(), address);
  if (next != addresses.end()) end = *next;
  addresses.insert(next, address);
  return end;
}

void erase(Addresses& addresses, std::uint64_t address) {
  const auto place = std::lower_bound(addresses.begin(), addresses.end(), address);
  if (place != addresses.end() && *place == address) addresses.erase(place);
}

}  // namespace

void LargeSegments::add(std::uint64_t base, std::int64_t size) {
  const std::uint64_t end = base + static_cast<std::uint64_t>(size);
  if (size <= 0 || end < base) return;  // a broken file
  auto first = segments_.lower_bound(base);
  if (first != segments_.begin() && std::prev(first)->second.holds(base)) --first;
  const auto last = segments_.lower_bound(end);
  for (auto it = first; it != last; ++it) {
    for (const std::uint64_t address : it->second.live) put_elsewhere(address);
  }
  segments_.erase(first, last);
  forget_recent();
  const auto inside = std::lower_bound(elsewhere_.begin(), elsewhere_.end(), base);
  const auto beyond = std::lower_bound(inside, elsewhere_.end(), end);
  segments_.emplace(base, Segment{base, static_cast<std::uint64_t>(size), {inside, beyond}});
  elsewhere_.erase(inside, beyond);
}

std::int64_t LargeSegments::take(std::uint64_t address, std::int64_t rounded) {
  Segment* const holder = holder_of(address);
  if (holder == nullptr) {
    put_elsewhere(address);
    return rounded;
  }
  const std::uint64_t end = insert(holder->live, address, holder->base + holder->size);
  const auto free_bytes = static_cast<std::int64_t>(end - address);
  const std::int64_t remaining = free_bytes - rounded;
  return remaining >= 0 && remaining <= kSmallSize ? free_bytes : rounded;
}

void LargeSegments::give_back(std::uint64_t address) {
  Segment* const holder = holder_of(address);
  erase(holder == nullptr ? elsewhere_ : holder->live, address);
}

void LargeSegments::forget_empty() {
  std::erase_if(segments_, [](const auto& entry) { return entry.second.live.empty(); });
  forget_recent();
}

void LargeSegments::clear() {
  segments_.clear();
  elsewhere_.clear();
  forget_recent();
}

void LargeSegments::put_elsewhere(std::uint64_t address) {
  if (elsewhere_.size() < kMostElsewhere) insert(elsewhere_, address, 0);
}

LargeSegments::Segment* LargeSegments::holder_of(std::uint64_t address) {
  Segment*& recent = recent_[place_of(address)];
  if (recent != nullptr && recent->holds(address)) return recent;
  const auto after = segments_.upper_bound(address);
  if (after == segments_.begin()) return nullptr;
  Segment& segment = std::prev(after)->second;
  if (!segment.holds(address)) return nullptr;
  recent = &segment;
  return recent;
}

}  // namespace gpumemtrace::compute
