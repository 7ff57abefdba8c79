#include "compute/marks.h"

namespace gpumemtrace::compute {

void MarkResolver::feed(const Columns& records, std::int64_t* step, std::int32_t* phase) {
  std::uint32_t thread = 0;
  std::int32_t resolved = phase_of(thread);
  for (std::size_t i = 0; i < records.count; ++i) {
    const Kind kind = records.kind_at(i);
    if (kind == Kind::kPhase) enter(records, i);
    if (kind == Kind::kStep) step_ = records.size[i];
    if (kind == Kind::kPhase || records.thread[i] != thread) {
      thread = records.thread[i];
      resolved = phase_of(thread);
    }
    step[i] = step_;
    phase[i] = resolved;
  }
}

void MarkResolver::enter(const Columns& records, std::size_t i) {
  const std::uint32_t thread = records.thread[i];
  const auto phase = static_cast<std::int32_t>(records.size[i]);
  if ((records.flags[i] & kPhaseProcessWide) != 0) {
    process_wide_ = phase;
    process_wide_owner_ = thread;
  } else if (process_wide_ != 0 && thread == process_wide_owner_) {
    process_wide_ = 0;
  }
  if (phase == 0) {
    own_.erase(thread);
  } else {
    own_[thread] = phase;
  }
}

std::int32_t MarkResolver::phase_of(std::uint32_t thread) const {
  if (process_wide_ != 0) return process_wide_;
  if (const auto own = own_.find(thread); own != own_.end()) return own->second;
  const auto driving = own_.find(driving_thread_);
  return driving == own_.end() ? 0 : driving->second;
}

}  // namespace gpumemtrace::compute
