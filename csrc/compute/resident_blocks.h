// Blocks from before training that stay: which are parameters, which are buffers, copies, inputs?
//
// Evidence: a parameter that is trained has a gradient of its size and, with most optimizers, one or
// two blocks of state of its size (only these where gradients are reduced in flat buffers, as FSDP2
// does); a module's parameters are
// moved to the device before its buffers, children before parents (torch.nn.Module._apply).
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace gpumemtrace::compute {

enum class ResidentKind : std::uint8_t {
  kNothing = 0,
  kHasGradient,  // a parameter that is trained
  kHasState,     // likewise, told by its optimizer state: gradients lie in another's buffer
  kCopy,         // sizes of trained parameters, but no gradient: frozen layers, averaged weights
  kLoadedState,  // one or two whole sets of such: optimizer state from before the first step
  kFrozen,       // a parameter that is not trained
  kBuffer,
  kInput,
};

// Where it was born. Later ones are parameters only where earlier ones do not suffice.
enum class Origin : std::uint8_t { kSetup, kData, kRunning };

struct Resident {
  std::int64_t number;  // of its alloc
  std::int64_t size;
  Origin origin = Origin::kSetup;
  ResidentKind kind = ResidentKind::kNothing;
};

struct ResidentEvidence {
  // Per size: how many gradients there were at once.
  const std::unordered_map<std::int64_t, std::int32_t>& gradients;
  // Per size: how many blocks of optimizer state, made by an optimizer in its step, stay.
  const std::unordered_map<std::int64_t, std::int32_t>& states;
  bool has_born_state;  // some optimizer made its state in its own step
  bool has_run;         // a model has run: there was a forward, a backward or an evaluation
};

// Sorts `blocks` by number and sets their kinds. A block with a kind keeps it: it is evidence.
void judge_residents(std::vector<Resident>& blocks, const ResidentEvidence& evidence);

}  // namespace gpumemtrace::compute
