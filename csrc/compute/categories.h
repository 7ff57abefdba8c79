// What each allocation is for, told from tags and, without them, from when it lived.
//
// A stream with memory of a few bytes per alloc: most blocks are judged when they die; those that
// outlive a step or two, which are few, when the trace has ended. What the rules mean in words:
// gpumemtrace/analysis/categories.py.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "compute/block_table.h"
#include "compute/columns.h"
#include "compute/resident_blocks.h"

namespace gpumemtrace::compute {

// The part of training that a phase belongs to, by the innermost of its names that is one of ours.
enum class PhaseClass : std::uint8_t {
  kOther = 0,  // outside of phases, or only in phases of the user's
  kInit,
  kData,
  kForward,
  kBackward,
  kOptimizer,
  kZeroGrad,
  kEval,
};
constexpr std::size_t kPhaseClasses = 8;

// `is_entry`: opening this path opens the phase of its class (not a phase nested in it).
struct PhaseMeaning {
  PhaseClass phase = PhaseClass::kOther;
  bool is_entry = true;
};

// What decided. Mirrored by RULES in gpumemtrace/analysis/categories.py.
enum class Rule : std::uint8_t {
  kNone = 0,
  kTag,
  kSavedForBackward,
  kOutput,
  kRetained,
  kGradientSize,
  kFreedByZeroGrad,
  kBornInOptimizer,
  kLoadedState,
  kHasGradient,
  kCopy,
  kFrozen,
  kBetweenParameters,
  kBornInData,
  kAfterParameters,
  kSamePhase,
  kBeforeTraining,
  kAfterBackward,
  kAfterOptimizer,
  kKept,
  kHasState,
  kSummarised,
};

class Categorizer {
 public:
  // `meanings`: of each phase path, by its index.
  explicit Categorizer(std::vector<PhaseMeaning> meanings);

  // `path`: index of each record's phase path, -1 = none.
  void feed(const Columns& records, const std::int32_t* path);
  // Judges what is alive. Nothing is fed afterwards.
  void finish();

  // One per alloc, in the order of the trace.
  const std::vector<std::uint8_t>& categories() const noexcept { return category_; }
  const std::vector<std::uint8_t>& rules() const noexcept { return rule_; }

 private:
  struct Block {
    std::int64_t number;
    std::int64_t size;
    std::uint32_t turn;   // steps of an optimizer begun before it
    std::uint32_t entry;  // of its phase class
    PhaseClass phase;
    bool is_early;     // born before the first backward
    bool is_autograd;  // born in backward on another thread than the one that called it
  };
  using SizeCounts = std::unordered_map<std::int64_t, std::int32_t>;

  PhaseMeaning meaning(std::int32_t path) const noexcept;
  std::uint32_t& entries(PhaseClass phase) noexcept {
    return entries_[static_cast<std::size_t>(phase)];
  }

  void mark_phase(const Columns& records, std::size_t i, PhaseMeaning now);
  void count_residents();
  void count_gradients();
  void tag(const Columns& records, std::size_t i);
  std::int64_t holder_of(std::uint64_t address, std::int16_t device, std::int64_t* size);

  void bury(const Block& block, PhaseClass death);
  void end_step();
  // Whether it was born in steps that share a summary (ageing/summary.h), of which phases are not told.
  bool is_summarised(std::int64_t number) const;
  void bury_unseen(const Block& block);
  void judge_survivor(const Block& block, bool is_alive);
  void decide_resident(const Resident& resident);
  bool has_gradient_size(const Block& block) const;
  // Whether exact tags of this category were set while the block lived, and none of this size.
  bool is_denied(const Block& block, Category category) const;
  bool is_tagged(std::int64_t number) const;
  void decide(const Block& block, Category category, Rule rule) {
    decide(block.number, category, rule);
  }
  void decide(std::int64_t number, Category category, Rule rule);

  std::vector<PhaseMeaning> meanings_;
  BlockTable<Block> live_;
  std::vector<std::uint8_t> category_;
  std::vector<std::uint8_t> rule_;

  std::array<std::uint32_t, kPhaseClasses> entries_{};
  std::uint32_t turn_ = 0;
  std::uint32_t told_as_one_ = 0;  // steps that the summary stands for which kStep will end
  std::int64_t step_begin_ = 0;    // number of the first alloc since kStep
  std::vector<std::pair<std::int64_t, std::int64_t>> summarised_;  // numbers, ascending
  std::vector<Block> freed_outside_;  // since kStep, outside phases, but born in one
  bool has_optimizer_ = false;
  bool has_known_phases_ = false;
  bool is_in_backward_ = false;
  std::uint32_t backward_thread_ = 0;
  bool has_autograd_thread_ = false;  // autograd works in threads of its own, as on a GPU

  SizeCounts residents_;  // sizes that a parameter may have: live blocks from before backward
  bool has_new_residents_ = false;
  SizeCounts gradients_;  // per size the most that were seen to outlive a backward at once
  SizeCounts states_;     // per size those made in a step of an optimizer that stay
  std::unordered_set<std::int64_t> freed_gradients_;  // sizes of those that did not stay
  std::uint32_t backwards_ended_ = 0;
  std::uint32_t next_count_ = 1;

  struct Tagged {
    std::int64_t allocs = 0;  // before the last tag of the category
    std::unordered_set<std::int64_t> sizes;
  };
  std::map<Category, Tagged> tagged_;

  std::vector<Resident> survivors_;
  bool has_born_state_ = false;
};

}  // namespace gpumemtrace::compute
