#include "torch/pair_loop.h"

#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <barrier>
#include <thread>
#include <vector>

#include "capture/clock.h"
#include "torch/hook.h"

namespace gpumemtrace::hook {
namespace {

CUDAAllocator& chosen_allocator(Through through) {
  return through == Through::kNative ? Hook::instance().native()
                                     : *c10::cuda::CUDACachingAllocator::get();
}

// As it is, wherever it comes to lie: what is measured is a difference of 30 ns, and where a loop begins
// in its line has made 10 ns.
[[gnu::noinline, gnu::aligned(64)]] void run_pairs(CUDAAllocator& allocator, std::size_t size_bytes,
                                                   std::size_t pairs) {
  for (std::size_t pair = 0; pair < pairs; ++pair) {
    const c10::DataPtr block = allocator.allocate(size_bytes);
  }
}

// What goes past the hook is one operation to it: a miss outside of any, and it would follow no streams
// from then on (block_streams.h).
class Passing {
 public:
  explicit Passing(Through through) : is_past_(through == Through::kNative) {
    if (is_past_) Hook::instance().recorder().arrive();
  }
  ~Passing() {
    if (is_past_) Hook::instance().recorder().abandoned();
  }
  Passing(const Passing&) = delete;
  Passing& operator=(const Passing&) = delete;

 private:
  const bool is_past_;
};

}  // namespace

std::uint64_t time_pairs(std::size_t size_bytes, std::size_t pairs, int threads, Through through) {
  CUDAAllocator& allocator = chosen_allocator(through);
  if (threads == 1) {
    const Passing passing(through);
    const std::uint64_t since_ns = capture::monotonic_ns();
    run_pairs(allocator, size_bytes, pairs);
    return capture::monotonic_ns() - since_ns;
  }
  std::barrier start(threads + 1);
  std::vector<std::jthread> workers;
  for (int thread = 0; thread < threads; ++thread) {
    workers.emplace_back([&, stream = c10::cuda::getStreamFromPool()] {
      const c10::cuda::CUDAStreamGuard guard(stream);
      const Passing passing(through);
      run_pairs(allocator, size_bytes, 1);  // the stream's first block comes from the driver
      start.arrive_and_wait();
      run_pairs(allocator, size_bytes, pairs);
    });
  }
  start.arrive_and_wait();
  const std::uint64_t since_ns = capture::monotonic_ns();
  workers.clear();  // joins
  return capture::monotonic_ns() - since_ns;
}

std::vector<float> time_each_pair(std::size_t size_bytes, std::size_t pairs, Through through) {
  CUDAAllocator& allocator = chosen_allocator(through);
  const Passing passing(through);
  std::vector<std::uint64_t> ticks(pairs + 1);
  const std::uint64_t since_ns = capture::monotonic_ns();
  ticks[0] = capture::ticks();
  for (std::size_t pair = 1; pair <= pairs; ++pair) {
    run_pairs(allocator, size_bytes, 1);
    ticks[pair] = capture::ticks();
  }
  const auto whole_ns = static_cast<double>(capture::monotonic_ns() - since_ns);
  const double ns_per_tick = whole_ns / static_cast<double>(ticks[pairs] - ticks[0]);
  std::vector<float> times_ns(pairs);
  for (std::size_t pair = 0; pair < pairs; ++pair) {
    times_ns[pair] =
        static_cast<float>(static_cast<double>(ticks[pair + 1] - ticks[pair]) * ns_per_tick);
  }
  return times_ns;
}

}  // namespace gpumemtrace::hook
