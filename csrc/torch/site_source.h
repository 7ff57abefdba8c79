// What makes an event: the module that runs in this thread or, in a backward, that made the node; and
// the call site, while stacks are taken.
#pragma once

#include <cstdint>

#include "trace/event.h"

namespace gpumemtrace::hook {

// Any thread. Begins and ends asking for sites; each is one wish, sites come as long as there is one.
void want_modules(bool wanted) noexcept;
void want_stacks(bool wanted) noexcept;

// Stacks of allocations of `min_bytes` or more are taken from here on, or not.
void take_stacks(bool taken, std::uint64_t min_bytes) noexcept;

}  // namespace gpumemtrace::hook
