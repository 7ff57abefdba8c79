// Sets of addresses, as ranges.
#pragma once

#include <cstdint>
#include <map>

namespace simgpu {

constexpr uint64_t round_up(uint64_t value, uint64_t step) {
  return (value + step - 1) / step * step;
}

// A map from start to something with a `size`: the entry that holds `address`, or end().
template <typename Map>
auto containing(Map& map, uint64_t address) {
  auto entry = map.upper_bound(address);
  if (entry == map.begin()) return map.end();
  --entry;
  return address < entry->first + entry->second.size ? entry : map.end();
}

// Ranges that never touch: those that would are one.
class RangeSet {
 public:
  RangeSet() = default;
  RangeSet(uint64_t start, uint64_t size) { add(start, size); }

  // The range may overlap what is there; a size of 0 does nothing.
  void add(uint64_t start, uint64_t size);
  // What of the range is not there stays so.
  void remove(uint64_t start, uint64_t size);
  // Removes the lowest `size` bytes in a row and returns where they start; 0 when there are none.
  uint64_t take_lowest(uint64_t size);
  bool contains(uint64_t start, uint64_t size) const;
  // Whether the set's range at `start` is [start, start + size) exactly.
  bool has_range(uint64_t start, uint64_t size) const;
  void clear() { ranges_.clear(); }

 private:
  std::map<uint64_t, uint64_t> ranges_;  // start -> end
};

}  // namespace simgpu
