// Any events through the loops of the analysis, in two batches: whatever they say, memory stays safe
// and no sum overflows.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "compute/categories.h"
#include "compute/marks.h"
#include "compute/pairing.h"
#include "compute/segments.h"
#include "compute/totals.h"
#include "fuzz_events.h"

using namespace gpumemtrace;
using namespace gpumemtrace::compute;

namespace {

struct Batch {
  explicit Batch(const std::vector<Event>& events) {
    for (const Event& event : events) {
      kind.push_back(static_cast<std::uint16_t>(event.kind));
      device.push_back(event.device);
      thread.push_back(event.thread);
      flags.push_back(event.flags);
      address.push_back(event.address);
      size.push_back(static_cast<std::int64_t>(event.size));
      stream.push_back(event.stream);
      extra.push_back(event.extra);
    }
  }
  Columns from(std::size_t first, std::size_t end) const {
    return {end - first,           kind.data() + first,   device.data() + first,
            thread.data() + first, flags.data() + first,  address.data() + first,
            size.data() + first,   stream.data() + first, extra.data() + first};
  }

  std::vector<std::uint16_t> kind;
  std::vector<std::int16_t> device;
  std::vector<std::uint32_t> thread, flags;
  std::vector<std::uint64_t> address, stream, extra;
  std::vector<std::int64_t> size;
};

class Analyses {
 public:
  explicit Analyses(std::size_t most) : device_(most), known_(most), path_(most) {
    for (auto& line : lines_) line.resize(most);
  }

  void feed(const Columns& records) {
    std::int64_t* const lines[] = {lines_[0].data(), lines_[1].data(), lines_[2].data(),
                                   lines_[3].data(), lines_[4].data(), lines_[5].data(),
                                   lines_[6].data()};
    builder_.feed(records, {device_.data(), lines[0], lines[1], lines[2], lines[3], known_.data()});
    builder_.copy().pass(records);
    pairing_.feed(records, lines[0]);
    marks_.feed(records, lines[0], path_.data());
    for (std::int32_t& path : path_) path = (path & 3) - 1;
    categorizer_.feed(records, path_.data());
    const FreeLines free{device_.data(),
                         lines[0],
                         lines[1],
                         {lines[2], lines[3], lines[4], lines[5], lines[6]},
                         known_.data()};
    replay_.feed(records, &free);
  }
  void finish() { categorizer_.finish(); }

 private:
  std::vector<std::int16_t> device_;
  std::vector<std::uint8_t> known_;
  std::vector<std::int32_t> path_;
  std::vector<std::int64_t> lines_[2 + kFreeCauses];

  LineBuilder builder_;
  Pairing pairing_;
  MarkResolver marks_{1};
  Categorizer categorizer_{{{PhaseClass::kForward, true},
                            {PhaseClass::kBackward, true},
                            {PhaseClass::kOptimizer, true}}};
  SegmentReplay replay_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size_bytes) {
  const Batch batch(events_of(data, size_bytes));
  const std::size_t count = batch.kind.size();
  Analyses analyses(count);
  analyses.feed(batch.from(0, count / 2));
  analyses.feed(batch.from(count / 2, count));
  analyses.finish();
  return 0;
}
