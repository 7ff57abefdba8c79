// Events of a chunk, grouped by kind: the order in which codec 1 stores all columns but kind and
// time. A field means one thing within a kind, so its values lie close together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gpumemtrace {

// Keeps its memory from one chunk to the next. One thread at a time.
class KindGroups {
 public:
  struct Group {
    std::uint16_t kind;
    const std::uint32_t* positions;  // of the events of this kind, ascending
    std::size_t size;
  };

  // Groups by ascending kind. `count` < 2^32. Valid until the next call.
  const std::vector<Group>& split(const std::uint16_t* kinds, std::size_t count);

 private:
  std::vector<std::uint32_t> count_of_kind_ = std::vector<std::uint32_t>(65536);  // 0 between calls
  std::vector<std::uint32_t> positions_;
  std::vector<Group> groups_;
};

}  // namespace gpumemtrace
