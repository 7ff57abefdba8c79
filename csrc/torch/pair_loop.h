// The loop behind benchmarks/hook_overhead.py and the contention test: allocate, give back, again,
// through whatever allocator torch uses now. In C++, since a Python loop costs ten times as much as
// what it is to measure.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpumemtrace::hook {

// Wall time of `threads` threads that run `pairs` pairs each, in ns. One thread: the calling one, on
// its current stream. More: threads of their own, each on a stream of its own.
std::uint64_t time_pairs(std::size_t size_bytes, std::size_t pairs, int threads);

}  // namespace gpumemtrace::hook
