#include "torch/pair_loop.h"

#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <barrier>
#include <thread>
#include <vector>

#include "capture/clock.h"
#include "torch/torch_compat.h"

namespace gpumemtrace::hook {
namespace {

void run_pairs(CUDAAllocator& allocator, std::size_t size_bytes, std::size_t pairs) {
  for (std::size_t pair = 0; pair < pairs; ++pair) {
    const c10::DataPtr block = allocator.allocate(size_bytes);
  }
}

}  // namespace

std::uint64_t time_pairs(std::size_t size_bytes, std::size_t pairs, int threads) {
  CUDAAllocator& allocator = *c10::cuda::CUDACachingAllocator::get();
  if (threads == 1) {
    const std::uint64_t since_ns = capture::monotonic_ns();
    run_pairs(allocator, size_bytes, pairs);
    return capture::monotonic_ns() - since_ns;
  }
  std::barrier start(threads + 1);
  std::vector<std::jthread> workers;
  for (int thread = 0; thread < threads; ++thread) {
    workers.emplace_back([&, stream = c10::cuda::getStreamFromPool()] {
      const c10::cuda::CUDAStreamGuard guard(stream);
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

}  // namespace gpumemtrace::hook
