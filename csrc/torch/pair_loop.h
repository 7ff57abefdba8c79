// The loops behind benchmarks/hook_overhead.py and the contention test: allocate, give back, again.
// In C++, since a Python loop costs ten times as much as what it is to measure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gpumemtrace::hook {

// Which allocator a loop calls: the one that torch uses now, or the native one, past a hook that
// stands in front of it. Both in one process, so that their difference is not that of two processes.
enum class Through : bool { kNative, kCurrent };

// Wall time of `threads` threads that run `pairs` pairs each, in ns. One thread: the calling one, on
// its current stream. More: threads of their own, each on a stream of its own.
std::uint64_t time_pairs(std::size_t size_bytes, std::size_t pairs, int threads, Through through);

// What each of `pairs` pairs took in the calling thread, in ns, with one clock reading in each.
std::vector<float> time_each_pair(std::size_t size_bytes, std::size_t pairs, Through through);

}  // namespace gpumemtrace::hook
