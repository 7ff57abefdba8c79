// The rules of Categorizer: what a block is, by when it was born and when it went.
#include "compute/categories.h"

namespace gpumemtrace::compute {
namespace {

// What outlives this many steps was not made for the step in which it was born.
constexpr std::uint32_t kFewSteps = 2;
// What is still there after so many is no gradient where others of its size are freed; with several
// optimizers a gradient may live for a few of their steps.
constexpr std::uint32_t kManySteps = 8;

}  // namespace

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
