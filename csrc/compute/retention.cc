#include "compute/retention.h"

#include <algorithm>
#include <bit>

namespace gpumemtrace::compute {
namespace {

constexpr std::int64_t kGranule = 512;

// Hostile sizes must not overflow the sums.
constexpr std::int64_t kMostBytes = std::int64_t{1} << 48;

std::int64_t allocated_bytes(std::int64_t size) noexcept {
  return (std::clamp<std::int64_t>(size, 0, kMostBytes) + kGranule - 1) / kGranule * kGranule;
}

}  // namespace

void RetentionLedger::feed(const Columns& records, const std::int32_t* phase,
                           const std::uint8_t* category, std::size_t categories) {
  std::size_t alloc = 0;
  for (std::size_t i = 0; i < records.count; ++i) {
    const Kind kind = records.kind_at(i);
    BlockTable<Block>::Slot gone;
    if (kind == Kind::kAlloc) {
      // Memory in use is not handed out twice: the old block went without our seeing its free.
      const bool was_live = live_.erase(records.address[i], records.device[i], &gone);
      if (was_live) died(gone.value);
      const std::uint8_t its_category = alloc < categories ? category[alloc] : std::uint8_t{0};
      const std::uint32_t group = group_of(records.device[i], phase[i], its_category);
      const Block born{allocs_ + static_cast<std::int64_t>(alloc), allocated_bytes(records.size[i]),
                       group, step_marks_, records.thread[i]};
      live_.insert(records.address[i], records.device[i], born);
      groups_[group].live_bytes += born.size;
      ++alloc;
    } else if (kind == Kind::kFree) {
      if (live_.erase(records.address[i], records.device[i], &gone)) died(gone.value);
    } else if (kind == Kind::kStep) {
      end_step();
    }
  }
  allocs_ += static_cast<std::int64_t>(alloc);
}

std::uint32_t RetentionLedger::group_of(std::int16_t device, std::int32_t phase,
                                        std::uint8_t category) {
  if (last_group_ < groups_.size()) {
    const Group& last = groups_[last_group_];
    if (last.phase == phase && last.device == device && last.category == category) {
      return last_group_;
    }
  }
  const auto [entry, is_new] =
      numbers_.try_emplace({device, phase, category}, static_cast<std::uint32_t>(groups_.size()));
  if (is_new) {
    Group& group = groups_.emplace_back();
    group.device = device;
    group.phase = phase;
    group.category = category;
  }
  last_group_ = entry->second;
  return last_group_;
}

void RetentionLedger::died(const Block& block) noexcept {
  Group& group = groups_[block.group];
  group.live_bytes -= block.size;
  const std::uint32_t age = step_marks_ - block.birth;
  if (age != 0) group.freed_bytes[static_cast<std::size_t>(std::bit_width(age) - 1)] += block.size;
}

void RetentionLedger::end_step() {
  if (step_marks_ % stride_ == 0) {
    auto& row = rows_.emplace_back(groups_.size());
    std::transform(groups_.begin(), groups_.end(), row.begin(),
                   [](const Group& group) { return group.live_bytes; });
    row_mark_.push_back(step_marks_);
  }
  ++step_marks_;
  if (rows_.size() < kMostRows) return;
  for (std::size_t i = 0; 2 * i < rows_.size(); ++i) {
    rows_[i].swap(rows_[2 * i]);
    row_mark_[i] = row_mark_[2 * i];
  }
  rows_.resize(kMostRows / 2);
  row_mark_.resize(kMostRows / 2);
  stride_ *= 2;
}

}  // namespace gpumemtrace::compute
