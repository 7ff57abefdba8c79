#include "trace/kind_groups.h"

#include <algorithm>

namespace gpumemtrace {

const std::vector<KindGroups::Group>& KindGroups::split(const std::uint16_t* kinds,
                                                        std::size_t count) {
  groups_.clear();
  positions_.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (count_of_kind_[kinds[i]]++ == 0) groups_.push_back({kinds[i], nullptr, 0});
  }
  std::sort(groups_.begin(), groups_.end(),
            [](const Group& a, const Group& b) { return a.kind < b.kind; });
  std::uint32_t start = 0;
  for (Group& group : groups_) {
    group.positions = positions_.data() + start;
    group.size = count_of_kind_[group.kind];
    count_of_kind_[group.kind] = start;  // from here on: where the next position goes
    start += static_cast<std::uint32_t>(group.size);
  }
  for (std::size_t i = 0; i < count; ++i) {
    positions_[count_of_kind_[kinds[i]]++] = static_cast<std::uint32_t>(i);
  }
  for (const Group& group : groups_) count_of_kind_[group.kind] = 0;
  return groups_;
}

}  // namespace gpumemtrace
