// That the lines are right is tested in Python against references (tests/test_lines.py) and recorded
// runs. Here: that no column of a file, however broken, makes them do what C++ does not define.
#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "compute/marks.h"
#include "compute/pairing.h"
#include "compute/totals.h"

namespace gpumemtrace::compute {
namespace {

struct Records {
  explicit Records(std::size_t count)
      : kind(count),
        device(count),
        thread(count),
        flags(count),
        address(count),
        size(count),
        stream(count),
        extra(count) {}

  Columns view() const {
    return {kind.size(),    kind.data(), device.data(), thread.data(), flags.data(),
            address.data(), size.data(), stream.data(), extra.data()};
  }

  std::vector<std::uint16_t> kind;
  std::vector<std::int16_t> device;
  std::vector<std::uint32_t> thread, flags;
  std::vector<std::uint64_t> address;
  std::vector<std::int64_t> size;
  std::vector<std::uint64_t> stream, extra;
};

// Numbers that arithmetic goes wrong on, and such as a real trace has.
std::uint64_t number(std::mt19937_64& random) {
  constexpr std::uint64_t kTop = std::uint64_t{1} << 63;
  switch (random() % 8) {
    case 0:
      return 0;
    case 1:
      return ~std::uint64_t{0};
    case 2:
      return kTop - 1;
    case 3:
      return kTop;
    case 4:
      return kTop - (random() % 4096);
    case 5:
      return random();
    default:
      return (random() % 64) << 20;
  }
}

Records broken(std::uint64_t seed, std::size_t count) {
  std::mt19937_64 random(seed);
  Records records(count);
  for (std::size_t i = 0; i < count; ++i) {
    records.kind[i] = static_cast<std::uint16_t>(random() % 22);
    records.device[i] = static_cast<std::int16_t>(random() % 4 == 0 ? random() : random() % 3);
    records.thread[i] = static_cast<std::uint32_t>(random() % 5);
    records.flags[i] = static_cast<std::uint32_t>(random() % 4);
    records.address[i] = number(random);
    records.size[i] = static_cast<std::int64_t>(number(random));
    records.stream[i] = number(random);
    records.extra[i] = random() % 2 == 0 ? 0 : number(random);
  }
  return records;
}

}  // namespace

TEST_CASE("records that mean nothing are read without harm") {
  constexpr std::size_t kCount = 2000;
  std::vector<std::int64_t> values(4 * kCount), numbers(kCount);
  std::vector<std::int16_t> devices(kCount);
  std::vector<std::int32_t> phases(kCount);
  std::vector<std::uint8_t> uncertain(kCount);
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Records records = broken(seed, kCount);
    LineBuilder builder;
    builder.feed(records.view(),
                 {devices.data(), values.data(), values.data() + kCount, values.data() + 2 * kCount,
                  values.data() + 3 * kCount, uncertain.data()});
    Pairing pairing;
    pairing.feed(records.view(), numbers.data());
    MarkResolver marks(1);
    marks.feed(records.view(), numbers.data(), phases.data());
    CHECK(pairing.allocs() <= builder.events());
  }
}

TEST_CASE("only the first anomalies of a type are kept, all are counted") {
  Records records(1000);
  for (auto& kind : records.kind) kind = static_cast<std::uint16_t>(Kind::kFree);
  std::vector<std::int64_t> values(4000);
  std::vector<std::int16_t> devices(1000);
  std::vector<std::uint8_t> uncertain(1000);
  LineBuilder builder;
  builder.feed(records.view(), {devices.data(), values.data(), values.data() + 1000,
                                values.data() + 2000, values.data() + 3000, uncertain.data()});
  CHECK(builder.anomaly_count(Anomaly::kUnknownFree) == 1000);
  CHECK(builder.anomalies().size() == LineBuilder::kKeptAnomalies);
  CHECK(builder.anomalies().back().event == 99);
}

}  // namespace gpumemtrace::compute
