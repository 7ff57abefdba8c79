#include "compute/live_groups.h"

#include <algorithm>

namespace gpumemtrace::compute {
namespace {

Columns part_of(const Columns& records, std::size_t first, std::size_t end) {
  return {end - first,
          records.kind + first,
          records.device + first,
          records.thread + first,
          records.flags + first,
          records.address + first,
          records.size + first,
          records.stream + first,
          records.extra + first};
}

// Sizes come from a file, so they may be anything; wrapping is defined for unsigned only.
void add_to(std::int64_t& sum, std::int64_t bytes) {
  sum = static_cast<std::int64_t>(static_cast<std::uint64_t>(sum) +
                                  static_cast<std::uint64_t>(bytes));
}
std::int64_t minus(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b));
}

void raise_highest(LiveGroups::Sums& sums) {
  std::int64_t total = 0;
  for (const std::int64_t bytes : sums.by_category) add_to(total, bytes);
  for (std::size_t i = 0; i < kCategories; ++i) {
    const std::int64_t without = minus(total, sums.by_category[i]);
    sums.highest_without[i] = std::max(sums.highest_without[i], without);
    sums.highest_with_half[i] =
        std::max(sums.highest_with_half[i], minus(total, sums.by_category[i] / 2));
  }
}

bool is_baseline(const Columns& records, std::size_t i) {
  return records.kind_at(i) == Kind::kStats &&
         records.flags[i] == static_cast<std::uint32_t>(StatsCause::kBaseline);
}

}  // namespace

LiveGroups::LiveGroups(const std::uint8_t* categories, std::size_t allocs, std::int32_t phases,
                       bool of_requests)
    : categories_(categories), allocs_(allocs), phases_(phases), of_requests_(of_requests) {}

const LiveGroups::Sums& LiveGroups::sums(std::int16_t device) {
  Sums& sums = sums_[device];
  sums.by_phase.resize(static_cast<std::size_t>(phases_) + 1);
  return sums;
}

void LiveGroups::feed_part(const Columns& records, const std::int64_t* step,
                           const std::int32_t* phase, std::size_t first, std::size_t end) {
  if (first >= end) return;
  const std::size_t count = end - first;
  line_scratch_.resize(4 * count);
  device_scratch_.resize(count);
  uncertain_scratch_.resize(count);
  auto* scratch = line_scratch_.data();
  const Lines lines{device_scratch_.data(), scratch,
                    scratch + count,        scratch + 2 * count,
                    scratch + 3 * count,    uncertain_scratch_.data()};
  const Columns part = part_of(records, first, end);
  step_ = step + first;
  phase_ = phase + first;
  lines_.feed(part, lines, this);
  note_baselines(part);
}

// The blocks told of before the reading that ends the baseline were there before. The reading comes
// once per device at most, at the beginning, so that what is born in the same part after it is
// found by its number.
void LiveGroups::note_baselines(const Columns& records) {
  for (std::size_t i = 0; i < records.count; ++i) {
    if (!is_baseline(records, i)) continue;
    std::int64_t after = 0;  // allocs of this part behind the reading
    for (std::size_t j = i + 1; j < records.count; ++j) after += records.kind_at(j) == Kind::kAlloc;
    for (Block& block : blocks_) {
      const bool is_before = block.number < lines_.allocs() - after;
      if (block.device == records.device[i] && is_before) block.is_from_before = true;
    }
  }
}

std::uint32_t LiveGroups::born(const Columns& records, std::size_t i, std::int64_t number,
                               std::int64_t allocated) {
  const auto index = static_cast<std::size_t>(number);
  const std::uint8_t category = index < allocs_ ? categories_[index] : std::uint8_t{0};
  const std::int32_t phase = phase_[i];
  const Block block{number,
                    records.address[i],
                    records.size[i],
                    allocated,
                    step_[i],
                    phase < phases_ ? phase : -1,
                    records.device[i],
                    category < kCategories ? category : std::uint8_t{0},
                    false,
                    true};
  add(block, of_requests_ ? block.requested : allocated);
  if (unused_.empty()) {
    blocks_.push_back(block);
    return static_cast<std::uint32_t>(blocks_.size() - 1);
  }
  const std::uint32_t place = unused_.back();
  unused_.pop_back();
  blocks_[place] = block;
  return place;
}

void LiveGroups::resized(std::uint32_t place, std::int64_t allocated) {
  Block& block = blocks_[place];
  if (!of_requests_) add(block, minus(allocated, block.allocated));
  block.allocated = allocated;
}

void LiveGroups::died(std::uint32_t place, std::size_t /*i*/) {
  Block& block = blocks_[place];
  add(block, minus(0, of_requests_ ? block.requested : block.allocated));
  block.is_live = false;
  unused_.push_back(place);
}

void LiveGroups::add(const Block& block, std::int64_t bytes) {
  Sums& sums = sums_[block.device];
  if (sums.by_phase.empty()) sums.by_phase.resize(static_cast<std::size_t>(phases_) + 1);
  add_to(sums.by_category[block.category], bytes);
  add_to(sums.by_phase[static_cast<std::size_t>(block.birth_phase + 1)], bytes);
  if (bytes > 0) raise_highest(sums);
}

}  // namespace gpumemtrace::compute
