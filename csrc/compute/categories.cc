#include "compute/categories.h"

#include <algorithm>

namespace gpumemtrace::compute {
namespace {

// What outlives this many steps was not made for the step in which it was born.
constexpr std::uint32_t kFewSteps = 2;
// What is still there after so many is no gradient where others of its size are freed; with several
// optimizers a gradient may live for a few of their steps.
constexpr std::uint32_t kManySteps = 8;
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

void Categorizer::bury(const Block& block, PhaseClass death) {
  if (is_tagged(block.number)) return;
  if (is_summarised(block.number)) {
    return decide(block, Category::kUnknown, Rule::kSummarised);
  }
  const bool is_same_entry = block.phase == death && block.entry == entries(death);
  const std::uint32_t turns = turn_ - block.turn;
  if (is_same_entry && turns == 0) {
    const bool is_known = block.phase != PhaseClass::kOther;
    if (is_known) decide(block, Category::kTemporary, Rule::kSamePhase);
    return;
  }
  if (turns >= kFewSteps) {
    judge_survivor(block, false);
    return;
  }
  switch (block.phase) {
    case PhaseClass::kForward:
    case PhaseClass::kEval:
      decide(block, Category::kActivation,
             death == PhaseClass::kBackward ? Rule::kSavedForBackward : Rule::kOutput);
      break;
    case PhaseClass::kBackward:
      if (has_gradient_size(block)) {
        freed_gradients_.insert(block.size);
        decide(block, Category::kGradient, Rule::kGradientSize);
      } else if (death == PhaseClass::kZeroGrad && !is_denied(block, Category::kGradient)) {
        freed_gradients_.insert(block.size);
        decide(block, Category::kGradient, Rule::kFreedByZeroGrad);
      } else {
        decide(block, Category::kTemporary, Rule::kAfterBackward);
      }
      break;
    case PhaseClass::kOptimizer:
      // State lives until the optimizer runs again.
      if (turns == 0 || is_denied(block, Category::kOptimizerState)) {
        decide(block, Category::kTemporary, Rule::kAfterOptimizer);
      } else {
        has_born_state_ = true;
        decide(block, Category::kOptimizerState, Rule::kBornInOptimizer);
      }
      break;
    case PhaseClass::kData:
      decide(block, Category::kInput, Rule::kBornInData);
      break;
    case PhaseClass::kInit:
    case PhaseClass::kOther:
      if (!block.is_early) break;
      if (entries(PhaseClass::kBackward) > 0 || turns > 0) {
        judge_survivor(block, false);
      } else if (has_known_phases_) {
        decide(block, Category::kTemporary, Rule::kBeforeTraining);
      }
      break;
    case PhaseClass::kZeroGrad:
      break;
  }
}

// `block` was freed in steps that share a summary: says only what holds whatever its phase was.
void Categorizer::bury_unseen(const Block& block) {
  if (is_tagged(block.number)) return;
  const bool is_first_turn = block.turn == 0;  // of a model that may have been loading yet
  switch (block.phase) {
    case PhaseClass::kForward:
    case PhaseClass::kEval:
      if (is_first_turn) break;
      return decide(block, Category::kActivation, Rule::kOutput);
    case PhaseClass::kBackward:
      if (!has_gradient_size(block)) break;
      return decide(block, Category::kGradient, Rule::kGradientSize);
    case PhaseClass::kData:
      return;  // as bury() said
    case PhaseClass::kInit:
    case PhaseClass::kOther:
      if (!block.is_early) break;
      return;  // as bury() said
    case PhaseClass::kOptimizer:
    case PhaseClass::kZeroGrad:
      break;
  }
  decide(block, Category::kUnknown, Rule::kSummarised);
}

// `block` lived for several steps, or from before training into it, or is alive at the end.
void Categorizer::judge_survivor(const Block& block, bool is_alive) {
  const std::uint32_t turns = turn_ - block.turn;
  const bool is_in_entry = is_alive && turns == 0 && block.entry == entries(block.phase);
  switch (block.phase) {
    case PhaseClass::kForward:
    case PhaseClass::kEval:
      if (turns < kFewSteps) {
        decide(block, Category::kActivation, Rule::kOutput);
      } else if (block.turn > 0) {
        decide(block, Category::kActivation, Rule::kRetained);
      } else if (freed_gradients_.count(block.size) != 0) {
        survivors_.push_back({block.number, block.size, Origin::kRunning});
      } else {
        decide(block, Category::kUnknown, Rule::kKept);
      }
      break;
    case PhaseClass::kBackward:
      if (is_alive && turns > kManySteps && freed_gradients_.count(block.size) != 0) {
        decide(block, Category::kUnknown, Rule::kKept);
      } else if (has_gradient_size(block)) {
        decide(block, Category::kGradient, Rule::kGradientSize);
      } else if (is_in_entry) {
        decide(block, Category::kTemporary, Rule::kSamePhase);
      } else {
        decide(block, Category::kUnknown, Rule::kKept);
      }
      break;
    case PhaseClass::kOptimizer:
      if (is_in_entry && (turn_ > 1 || residents_.count(block.size) == 0)) {
        decide(block, Category::kTemporary, Rule::kSamePhase);
      } else if (is_denied(block, Category::kOptimizerState)) {
        decide(block, Category::kUnknown, Rule::kKept);
      } else {
        has_born_state_ = true;
        ++states_[block.size];
        decide(block, Category::kOptimizerState, Rule::kBornInOptimizer);
      }
      break;
    case PhaseClass::kData:
      if (block.is_early) {
        survivors_.push_back({block.number, block.size, Origin::kData});
      } else {
        decide(block, Category::kInput, Rule::kBornInData);
      }
      break;
    case PhaseClass::kInit:
    case PhaseClass::kOther:
      survivors_.push_back(
          {block.number, block.size, block.is_early ? Origin::kSetup : Origin::kRunning});
      break;
    case PhaseClass::kZeroGrad:
      break;
  }
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

void Categorizer::decide_resident(const Resident& resident) {
  if (is_tagged(resident.number)) return;
  const auto [category, rule] = [&]() -> std::pair<Category, Rule> {
    switch (resident.kind) {
      case ResidentKind::kHasGradient:
        return {Category::kParameter, Rule::kHasGradient};
      case ResidentKind::kHasState:
        return {Category::kParameter, Rule::kHasState};
      case ResidentKind::kCopy:
        return {Category::kParameter, Rule::kCopy};
      case ResidentKind::kFrozen:
        return {Category::kParameter, Rule::kFrozen};
      case ResidentKind::kLoadedState:
        return {Category::kOptimizerState, Rule::kLoadedState};
      case ResidentKind::kBuffer:
        return {Category::kBuffer, Rule::kBetweenParameters};
      case ResidentKind::kInput:
        return {Category::kInput,
                resident.origin == Origin::kData ? Rule::kBornInData : Rule::kAfterParameters};
      case ResidentKind::kNothing:
        break;
    }
    return {Category::kUnknown, has_known_phases_ ? Rule::kKept : Rule::kNone};
  }();
  // Where parameters were tagged, all those of models that ran were.
  const auto tags = tagged_.find(Category::kParameter);
  const bool was_there = tags != tagged_.end() && resident.number < tags->second.allocs;
  if (category == Category::kParameter && rule != Rule::kCopy && was_there) {
    decide(resident.number, Category::kUnknown, Rule::kKept);
  } else {
    decide(resident.number, category, rule);
  }
}

bool Categorizer::has_gradient_size(const Block& block) const {
  if (is_denied(block, Category::kGradient)) return false;
  if (has_autograd_thread_ && !block.is_autograd) return false;
  const auto tags = tagged_.find(Category::kParameter);
  return residents_.count(block.size) != 0 ||
         (tags != tagged_.end() && tags->second.sizes.count(block.size) != 0);
}

bool Categorizer::is_denied(const Block& block, Category category) const {
  const auto tags = tagged_.find(category);
  return tags != tagged_.end() && block.number < tags->second.allocs &&
         tags->second.sizes.count(block.size) == 0;
}

bool Categorizer::is_tagged(std::int64_t number) const {
  return rule_[static_cast<std::size_t>(number)] == static_cast<std::uint8_t>(Rule::kTag);
}

void Categorizer::decide(std::int64_t number, Category category, Rule rule) {
  category_[static_cast<std::size_t>(number)] = static_cast<std::uint8_t>(category);
  rule_[static_cast<std::size_t>(number)] = static_cast<std::uint8_t>(rule);
}

}  // namespace gpumemtrace::compute
