#include "compute/categories.h"

#include <algorithm>

namespace gpumemtrace::compute {
namespace {

// What steps that share a summary have no more of: ageing/shares.h.
constexpr std::size_t kMostSummarised = std::size_t{1} << 17;

constexpr bool is_setup(PhaseClass phase) noexcept {
  return phase == PhaseClass::kInit || phase == PhaseClass::kOther;
}

}  // namespace

Categorizer::Categorizer(std::vector<PhaseMeaning> meanings) : meanings_(std::move(meanings)) {
  has_known_phases_ = std::any_of(meanings_.begin(), meanings_.end(), [](const PhaseMeaning& one) {
    return one.phase != PhaseClass::kOther;
  });
}

PhaseMeaning Categorizer::meaning(std::int32_t path) const noexcept {
  const auto index = static_cast<std::size_t>(path);
  return path < 0 || index >= meanings_.size() ? PhaseMeaning{} : meanings_[index];
}

void Categorizer::feed(const Columns& records, const std::int32_t* path) {
  for (std::size_t i = 0; i < records.count; ++i) {
    const std::uint64_t address = records.address[i];
    const std::int16_t device = records.device[i];
    switch (records.kind_at(i)) {
      case Kind::kAlloc: {
        const PhaseClass phase = meaning(path[i]).phase;
        const bool is_early = entries(PhaseClass::kBackward) == 0;
        const bool is_autograd =
            phase == PhaseClass::kBackward && records.thread[i] != backward_thread_;
        has_autograd_thread_ |= is_autograd;
        const Block born{static_cast<std::int64_t>(category_.size()),
                         records.size[i],
                         turn_,
                         entries(phase),
                         phase,
                         is_early,
                         is_autograd};
        category_.push_back(0);
        rule_.push_back(0);
        has_new_residents_ |= is_setup(phase) || (is_early && phase == PhaseClass::kData);
        if (Block* old = live_.find(address, device); old != nullptr) {
          bury(*old, phase);
          *old = born;
        } else {
          live_.insert(address, device, born);
        }
        break;
      }
      case Kind::kFree: {
        BlockTable<Block>::Slot taken;
        if (!live_.erase(address, device, &taken)) break;
        const PhaseClass phase = meaning(path[i]).phase;
        bury(taken.value, phase);
        if (phase == PhaseClass::kOther && taken.value.phase != phase) {
          if (freed_outside_.size() == kMostSummarised) freed_outside_.clear();
          freed_outside_.push_back(taken.value);
        }
        break;
      }
      case Kind::kPhase:
        mark_phase(records, i, meaning(path[i]));
        break;
      case Kind::kStep:
        end_step();
        break;
      case Kind::kAged:
        // At the end of the summary, one for each device.
        if (records.flags[i] > 1 && told_as_one_ <= 1) {
          summarised_.emplace_back(step_begin_, category_.size());
        }
        told_as_one_ = std::max(told_as_one_, records.flags[i]);
        break;
      case Kind::kTag:
        tag(records, i);
        break;
      default:
        break;
    }
  }
}

void Categorizer::end_step() {
  if (told_as_one_ > 1) {
    turn_ += told_as_one_;
    for (const Block& block : freed_outside_) bury_unseen(block);
  } else if (!has_optimizer_) {
    // Where no optimizer phase tells the steps apart, the steps themselves do.
    ++turn_;
  }
  told_as_one_ = 0;
  step_begin_ = static_cast<std::int64_t>(category_.size());
  freed_outside_.clear();
}

bool Categorizer::is_summarised(std::int64_t number) const {
  const auto next =
      std::upper_bound(summarised_.begin(), summarised_.end(), std::pair{number, INT64_MAX});
  return next != summarised_.begin() && number < std::prev(next)->second;
}

void Categorizer::mark_phase(const Columns& records, std::size_t i, PhaseMeaning now) {
  if (is_in_backward_ && records.thread[i] == backward_thread_ &&
      now.phase != PhaseClass::kBackward) {
    is_in_backward_ = false;
    count_gradients();
  }
  if ((records.flags[i] & kPhaseEntered) == 0) return;
  freed_outside_.clear();  // in a summary of several steps none is entered
  if (!now.is_entry) return;
  if (now.phase == PhaseClass::kBackward) {
    if (has_new_residents_) count_residents();
    is_in_backward_ = true;
    backward_thread_ = records.thread[i];
  }
  if (now.phase == PhaseClass::kOptimizer) {
    has_optimizer_ = true;
    ++turn_;
  }
  ++entries(now.phase);
}

void Categorizer::count_residents() {
  has_new_residents_ = false;
  residents_.clear();
  next_count_ = backwards_ended_ + 1;  // there may be gradients of another model
  live_.for_each([&](const auto& slot) {
    const PhaseClass born = slot.value.phase;
    if (is_summarised(slot.value.number)) return;
    if (is_setup(born) || born == PhaseClass::kData) ++residents_[slot.value.size];
  });
}

// Gradients are alike from step to step, so that a look after backward 1, 2, 4, 8, … will do.
void Categorizer::count_gradients() {
  if (++backwards_ended_ < next_count_) return;
  next_count_ = 2 * backwards_ended_;
  SizeCounts now;
  live_.for_each([&](const auto& slot) {
    if (slot.value.phase == PhaseClass::kBackward) ++now[slot.value.size];
  });
  for (const auto& [size, count] : now) {
    std::int32_t& most = gradients_[size];
    most = std::max(most, count);
  }
}

void Categorizer::tag(const Columns& records, std::size_t i) {
  const auto category = static_cast<Category>(records.stream[i]);
  if (category == Category::kUnknown || category > Category::kTemporary) return;
  std::int64_t size = 0;
  const std::int64_t number = holder_of(records.address[i], records.device[i], &size);
  if (number < 0) return;
  if (category == Category::kParameter && !is_tagged(number)) {
    survivors_.push_back({number, size, Origin::kSetup, ResidentKind::kHasGradient});
  }
  category_[static_cast<std::size_t>(number)] = static_cast<std::uint8_t>(category);
  rule_[static_cast<std::size_t>(number)] = static_cast<std::uint8_t>(Rule::kTag);
  Tagged& tagged = tagged_[category];
  tagged.allocs = static_cast<std::int64_t>(category_.size());
  tagged.sizes.insert(size);
}

std::int64_t Categorizer::holder_of(std::uint64_t address, std::int16_t device,
                                    std::int64_t* size) {
  if (const Block* block = live_.find(address, device); block != nullptr) {
    *size = block->size;
    return block->number;
  }
  // A view into a larger block: rare enough to look at every live block.
  std::int64_t number = -1;
  live_.for_each([&](const auto& slot) {
    const bool same_device = device < 0 || slot.device == device;
    if (same_device && slot.address <= address &&
        address - slot.address < static_cast<std::uint64_t>(slot.value.size)) {
      number = slot.value.number;
      *size = slot.value.size;
    }
  });
  return number;
}

void Categorizer::finish() {
  live_.for_each([&](const auto& slot) {
    if (is_tagged(slot.value.number)) return;
    if (is_summarised(slot.value.number)) {
      decide(slot.value, Category::kUnknown, Rule::kSummarised);
    } else {
      judge_survivor(slot.value, true);
    }
  });
  std::erase_if(survivors_, [&](const Resident& resident) {
    return rule_[static_cast<std::size_t>(resident.number)] ==
           static_cast<std::uint8_t>(Rule::kSummarised);
  });
  const bool has_run = entries(PhaseClass::kForward) + entries(PhaseClass::kBackward) +
                           entries(PhaseClass::kEval) + entries(PhaseClass::kOptimizer) >
                       0;
  has_born_state_ |= tagged_.count(Category::kOptimizerState) != 0;
  judge_residents(survivors_, {gradients_, states_, has_born_state_, has_run});
  for (const Resident& resident : survivors_) decide_resident(resident);
}

}  // namespace gpumemtrace::compute
