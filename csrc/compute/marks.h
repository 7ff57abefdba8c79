// The step and the phase of every record, from the marks between them.
//
// Thread rule: a phase that holds process-wide wins; else a thread that has a phase open keeps it;
// any other thread (autograd's, say) takes the phase of the driving thread.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "compute/columns.h"

namespace gpumemtrace::compute {

class MarkResolver {
 public:
  // `driving_thread`: the one that emits the steps. Phases are path ids, 0 = none.
  explicit MarkResolver(std::uint32_t driving_thread) : driving_thread_(driving_thread) {}

  // A mark counts for itself: the record of a step has the number of the step that it begins.
  void feed(const Columns& records, std::int64_t* step, std::int32_t* phase);

 private:
  void enter(const Columns& records, std::size_t i);
  std::int32_t phase_of(std::uint32_t thread) const;

  std::uint32_t driving_thread_;
  std::int64_t step_ = 0;
  std::int32_t process_wide_ = 0;
  std::uint32_t process_wide_owner_ = 0;  // its next phase of its own ends the process-wide one
  std::unordered_map<std::uint32_t, std::int32_t> own_;  // open phases only
};

}  // namespace gpumemtrace::compute
