// Segments that nobody came back for.
#pragma once

#include <cstdint>
#include <string>

namespace gpumemtrace::capture {

// Completes the traces of this user whose processes were killed on this machine, in this pid
// namespace, and that nobody has read since. The segment of one that is not where it was recorded
// any more is removed when it is a day old. Looks once a process, on a thread of its own if there is
// anything to look at; returns at once.
void start_collecting_leftovers(const std::string& folder) noexcept;

// The same, here and now. Returns how many segments are gone.
int collect_leftovers(const std::string& folder, std::uint64_t now_ns) noexcept;

}  // namespace gpumemtrace::capture
