// fork() in a process that uses the simulated GPU (DataLoader workers do that).
#pragma once

#include <mutex>

namespace simgpu {

// From now on `mutex` is free in every forked child and what it guards is whole. For objects that
// are never destroyed. None of these mutexes may be taken while another of them is held.
void hold_across_fork(std::mutex& mutex) noexcept;

// True in a child whose parent had used a device before the fork: as with the real driver, every
// call that needs a device then fails.
bool is_in_bad_fork() noexcept;
// A device was used: forks from here on are bad ones.
void mark_used() noexcept;

}  // namespace simgpu
