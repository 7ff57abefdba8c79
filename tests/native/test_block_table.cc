#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <random>
#include <utility>

#include "compute/block_table.h"

namespace gpumemtrace::compute {

using Table = BlockTable<int>;
using Key = std::pair<std::uint64_t, std::int16_t>;

// Few addresses that are far from evenly spread: runs of probes form, wrap around and close again.
TEST_CASE("the table holds what a map holds, whatever is put in and taken out") {
  std::mt19937 random(1);
  Table table;
  std::map<Key, int> model;
  for (int i = 0; i < 200'000; ++i) {
    const std::uint64_t address = (random() % 5000) * 512;
    const auto device = static_cast<std::int16_t>(random() % 2);
    const auto known = model.find({address, device});
    int* const found = table.find(address, device);
    REQUIRE((found != nullptr) == (known != model.end()));
    if (found == nullptr) {
      table.insert(address, device, i);
      model[{address, device}] = i;
    } else {
      REQUIRE(*found == known->second);
      Table::Slot taken;
      REQUIRE(table.erase(address, device, &taken));
      CHECK(taken.value == known->second);
      CHECK(taken.device == device);
      model.erase(known);
    }
    REQUIRE(table.size() == model.size());
  }
  std::map<Key, int> left;
  table.for_each([&](const Table::Slot& slot) { left[{slot.address, slot.device}] = slot.value; });
  CHECK(left == model);
}

TEST_CASE("a device that is not known matches any") {
  Table table;
  table.insert(512, 3, 7);
  CHECK(table.find(512, 0) == nullptr);
  CHECK(*table.find(512, -1) == 7);
  Table::Slot taken;
  CHECK(table.erase(512, -1, &taken));
  CHECK(taken.device == 3);
  CHECK_FALSE(table.erase(512, -1, &taken));
}

TEST_CASE("the number that marks an empty slot is no device") {
  Table table;
  table.insert(0, INT16_MIN, 1);
  CHECK(table.size() == 1);
  CHECK(*table.find(0, INT16_MIN) == 1);
}

}  // namespace gpumemtrace::compute
