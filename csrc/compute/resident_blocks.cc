#include "compute/resident_blocks.h"

#include <algorithm>
#include <cstddef>

namespace gpumemtrace::compute {
namespace {

using Counts = std::unordered_map<std::int64_t, std::int32_t>;

// A block that no gradient speaks for is no parameter below this: scalars, counters, frequencies.
constexpr std::int64_t kSmallestFrozen = 1024;
// A part of a model that comes before all that is trained has at least so many blocks; fewer may
// as well be data.
constexpr std::size_t kFewestFrozen = 4;

std::int32_t count_of(const Counts& counts, std::int64_t size) {
  const auto found = counts.find(size);
  return found == counts.end() ? 0 : found->second;
}

constexpr std::int64_t kFar = INT64_MAX;
constexpr std::int64_t kLargestCounter = 8;
constexpr std::int64_t kMostBuffers = 2;  // before it: mean and variance

// Batch norm has weight, bias, mean, variance, and then a counter, which has no gradient. Returns
// for each block how far it is from such a counter, through blocks of its own size only; -1 = there
// is none.
std::vector<std::int64_t> distances_to_buffer(const std::vector<Resident>& blocks,
                                              const Counts& gradients) {
  std::vector<std::int64_t> distance(blocks.size(), -1);
  for (std::size_t i = blocks.size(); i-- > 0;) {
    if (i + 1 == blocks.size()) continue;
    const Resident& next = blocks[i + 1];
    if (next.size <= kLargestCounter && count_of(gradients, next.size) == 0) {
      distance[i] = 1;
    } else if (next.size == blocks[i].size && distance[i + 1] > 0 &&
               distance[i + 1] < kMostBuffers) {
      distance[i] = distance[i + 1] + 1;
    }
  }
  return distance;
}

// Of the blocks of one size more than `wanted` would be parameters: takes some out, buffers first,
// then the youngest.
void keep_parameters(std::vector<Resident>& blocks, const std::vector<std::int64_t>& distance,
                     std::vector<std::size_t> same_size, std::size_t wanted) {
  std::stable_sort(same_size.begin(), same_size.end(), [&](std::size_t a, std::size_t b) {
    const auto rank = [&](std::size_t i) { return distance[i] < 0 ? kFar : distance[i]; };
    if (blocks[a].origin != blocks[b].origin) return blocks[a].origin > blocks[b].origin;
    return rank(a) != rank(b) ? rank(a) < rank(b) : a > b;
  });
  const std::size_t excess = same_size.size() - wanted;
  for (std::size_t i = 0; i < same_size.size(); ++i) {
    Resident& block = blocks[same_size[i]];
    if (i >= excess) {
      block.kind = ResidentKind::kHasGradient;
    } else if (block.origin == Origin::kData) {
      block.kind = ResidentKind::kInput;
    } else if (block.origin == Origin::kSetup) {
      block.kind = distance[same_size[i]] > 0 ? ResidentKind::kBuffer : ResidentKind::kCopy;
    }
  }
}

void match_gradients(std::vector<Resident>& blocks, const Counts& gradients) {
  const auto distance = distances_to_buffer(blocks, gradients);
  std::unordered_map<std::int64_t, std::vector<std::size_t>> by_size;
  Counts settled;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i].kind == ResidentKind::kNothing) {
      by_size[blocks[i].size].push_back(i);
    } else {
      ++settled[blocks[i].size];
    }
  }
  for (auto& [size, same_size] : by_size) {
    const std::int32_t all = count_of(gradients, size);
    if (all == 0) continue;
    const auto wanted =
        static_cast<std::size_t>(std::max(all - count_of(settled, size), std::int32_t{0}));
    if (same_size.size() <= wanted) {
      for (const std::size_t i : same_size) blocks[i].kind = ResidentKind::kHasGradient;
    } else {
      keep_parameters(blocks, distance, std::move(same_size), wanted);
    }
  }
}

// Sizes come from a file: sums of any of them, times how many there are, fit this.
__extension__ using Wide = __int128;

// Is there, for every block of some sizes, `per` blocks of optimizer state? Returns the bytes of
// state that this explains.
Wide explained_by(const Counts& states, const Counts& residents, std::int32_t per) {
  Wide bytes = 0;
  for (const auto& [size, count] : states) {
    if (count_of(residents, size) * per == count) bytes += Wide{size} * count;
  }
  return bytes;
}

// Where gradients have no parameter's size, the optimizer's state may: momentum has one block for a
// parameter, Adam two.
void match_states(std::vector<Resident>& blocks, const Counts& states) {
  Counts residents;
  Wide trained_bytes = 0, state_bytes = 0;
  for (const Resident& block : blocks) {
    if (block.kind == ResidentKind::kNothing) ++residents[block.size];
    if (block.kind == ResidentKind::kHasGradient) trained_bytes += block.size;
  }
  for (const auto& [size, count] : states) state_bytes += Wide{size} * count;
  for (const std::int32_t per : {1, 2}) {
    const Wide explained = explained_by(states, residents, per);
    if (explained < state_bytes - state_bytes / 20 || explained / per <= trained_bytes) continue;
    for (Resident& block : blocks) {
      const bool is_matched = block.kind == ResidentKind::kNothing &&
                              count_of(states, block.size) > 0 &&
                              count_of(residents, block.size) * per == count_of(states, block.size);
      if (is_matched) block.kind = ResidentKind::kHasState;
    }
    return;
  }
}

// Optimizer state from before the first step is one or two whole further sets of the parameters.
void find_loaded_state(std::vector<Resident>& blocks, const Counts& gradients) {
  std::unordered_map<std::int64_t, std::int64_t> copies;
  for (const Resident& block : blocks) copies[block.size] += block.kind == ResidentKind::kCopy;
  for (const int sets : {1, 2}) {
    Wide bytes = 0, explained = 0;
    for (const auto& [size, count] : gradients) {
      const auto found = copies.find(size);
      if (found == copies.end()) continue;  // a gradient of no block that stays: not a parameter's
      bytes += Wide{size} * count;
      if (found->second == std::int64_t{sets} * count) explained += Wide{size} * count;
    }
    if (bytes == 0 || explained < bytes - bytes / 20) continue;
    for (Resident& block : blocks) {
      if (block.kind == ResidentKind::kCopy) block.kind = ResidentKind::kLoadedState;
    }
    return;
  }
}

void judge_without_gradient(std::vector<Resident>& blocks, bool has_run) {
  std::size_t first = blocks.size(), last = 0;
  std::int64_t trained_bytes = 0;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const bool is_trained =
        blocks[i].kind == ResidentKind::kHasGradient || blocks[i].kind == ResidentKind::kHasState;
    if (!is_trained && blocks[i].kind != ResidentKind::kCopy) continue;
    first = std::min(first, i);
    last = i;
    if (is_trained) trained_bytes += blocks[i].size;
  }
  std::int64_t other_bytes = 0;
  std::size_t before = 0;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i].kind != ResidentKind::kNothing || blocks[i].origin != Origin::kSetup) continue;
    before += i < first;
    if (i > first && i < last) other_bytes += blocks[i].size;
  }
  const bool is_mostly_frozen = other_bytes > trained_bytes;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    Resident& block = blocks[i];
    if (block.kind != ResidentKind::kNothing || block.origin == Origin::kRunning) continue;
    const bool may_be_frozen = block.size >= kSmallestFrozen;
    if (block.origin == Origin::kData) {
      block.kind = ResidentKind::kInput;
    } else if (!has_run) {
      continue;
    } else if (trained_bytes == 0) {
      block.kind = may_be_frozen ? ResidentKind::kFrozen : ResidentKind::kBuffer;
    } else if (i > last) {
      block.kind = ResidentKind::kInput;
    } else if (is_mostly_frozen || (i < first && before >= kFewestFrozen)) {
      block.kind = may_be_frozen ? ResidentKind::kFrozen : ResidentKind::kBuffer;
    } else if (i > first) {
      block.kind = ResidentKind::kBuffer;
    }
  }
}

}  // namespace

void judge_residents(std::vector<Resident>& blocks, const ResidentEvidence& evidence) {
  std::sort(blocks.begin(), blocks.end(),
            [](const Resident& a, const Resident& b) { return a.number < b.number; });
  match_gradients(blocks, evidence.gradients);
  match_states(blocks, evidence.states);
  if (!evidence.has_born_state) find_loaded_state(blocks, evidence.gradients);
  judge_without_gradient(blocks, evidence.has_run);
}

}  // namespace gpumemtrace::compute
