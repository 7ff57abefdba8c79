#include "torch/tracing_allocator.h"

#include <c10/cuda/CUDAFunctions.h>

#include <algorithm>
#include <cstdlib>

#include "capture/clock.h"
#include "torch/block_snapshot.h"
#include "torch/block_streams.h"
#include "torch/device_memory.h"
#include "torch/device_table.h"

namespace gpumemtrace::hook {
namespace {

using capture::active_ring;
using capture::count_skipped;

// For delete_traced, which torch keeps as a plain function pointer. Set once, by the constructor.
Recorder* g_recorder = nullptr;
c10::DeleterFnPtr g_native_deleter = nullptr;

// The deleter of every block that the native allocator caches.
void delete_traced(void* block) {
  if (block == nullptr) return;
  const auto [ring, attention] = g_recorder->arrive();
  if (ring == nullptr) [[unlikely]] {
    const Leaving at_end;
    g_recorder->freeing_unrecorded(block);
    count_skipped();
    g_native_deleter(block);
    return;
  }
  const std::uint64_t begin = g_recorder->freeing(ring, attention, block);
  g_native_deleter(block);
  g_recorder->freed(ring, begin);
}

// A block's deleter when caching is switched off for the whole process is the one that calls
// cudaFree: such blocks are not ours to record. torch's own test of the variable differs between
// versions, so compare what it does.
c10::DeleterFnPtr caching_deleter(CUDAAllocator& native) {
  const bool enabled = native.isEnabled();
  if (enabled && std::getenv("PYTORCH_NO_CUDA_MEMORY_CACHING") == nullptr) {
    return native.raw_deleter();
  }
  native.enable(true);
  const c10::DeleterFnPtr on = native.raw_deleter();
  native.enable(false);
  const c10::DeleterFnPtr off = native.raw_deleter();
  native.enable(enabled);
  return on != off ? on : nullptr;
}

// Runs `allocate`; what it throws goes on to the caller as it is, after an OOM has been recorded.
template <class Allocate>
auto or_record_failure(Recorder& recorder, Ring* ring, std::size_t size, const cudaStream_t* stream,
                       const Allocate& allocate) {
  try {
    return allocate();
  } catch (const c10::OutOfMemoryError&) {
    if (ring != nullptr) {
      const c10::DeviceIndex device = c10::cuda::current_device();
      recorder.failed(ring, size, device, stream != nullptr ? *stream : current_stream(device));
    } else {
      recorder.abandoned();
      count_skipped();
    }
    throw;
  } catch (...) {
    recorder.abandoned();
    throw;
  }
}

}  // namespace

TracingAllocator::TracingAllocator(CUDAAllocator& native, Recorder& recorder)
    : ForwardingAllocator(native), recorder_(recorder), native_deleter_(caching_deleter(native)) {
  g_recorder = &recorder;
  g_native_deleter = native_deleter_;
}

template <class Allocate>
inline c10::DataPtr TracingAllocator::allocate_with(std::size_t size, const Allocate& allocate) {
  const auto [ring, attention] = recorder_.arrive();
  const std::uint64_t begin = recorder_.begin(ring, attention, size);
  c10::DataPtr block = or_record_failure(recorder_, ring, size, nullptr, allocate);
  // Changes the deleter in place: pointer, context and device stay what they are. Also for an empty
  // block, since its deleter is to equal raw_deleter() too.
  const bool is_cached = block.compare_exchange_deleter(native_deleter_, &delete_traced);
  if (!is_cached || block.get() == nullptr) {
    recorder_.abandoned();
    return block;
  }
  if (ring == nullptr) [[unlikely]] {
    recorder_.abandoned();
    count_skipped();
    return block;
  }
  const c10::DeviceIndex device = block.device().index();
  recorder_.allocated(ring, begin, block.get(), size, device, stream_of(block.get(), device));
  return block;
}

c10::DataPtr TracingAllocator::allocate(std::size_t size) {
  return allocate_with(size, [this, size] { return native_.allocate(size); });
}

#if GPUMEMTRACE_TORCH_AT_LEAST(2, 13)
c10::DataPtr TracingAllocator::allocateWithAddress(std::size_t size, void* address) {
  const ChangingSegments changing;
  recorder_.distrust_segments();  // it may lie in the middle of a free block
  c10::DataPtr block = allocate_with(
      size, [this, size, address] { return native_.allocateWithAddress(size, address); });
  // It need not go the way of a cache miss.
  if (Ring* const ring = active_ring()) recorder_.released(ring, block.device().index());
  return block;
}
#endif

c10::DeleterFnPtr TracingAllocator::raw_deleter() const {
  const c10::DeleterFnPtr deleter = native_.raw_deleter();
  return deleter == native_deleter_ ? &delete_traced : deleter;
}

template <class Allocate>
inline void* TracingAllocator::raw_alloc_with(std::size_t size, const cudaStream_t* stream,
                                              const Allocate& allocate) {
  if (!caches()) return allocate();
  const auto [ring, attention] = recorder_.arrive();
  const std::uint64_t begin = recorder_.begin(ring, attention, size);
  void* const block = or_record_failure(recorder_, ring, size, stream, allocate);
  if (block == nullptr) {
    recorder_.abandoned();
    return block;
  }
  if (ring == nullptr) {
    recorder_.abandoned();
    count_skipped();
    return block;
  }
  const c10::DeviceIndex device = c10::cuda::current_device();
  recorder_.allocated(ring, begin, block, size, device,
                      stream != nullptr ? *stream : current_stream(device));
  return block;
}

void* TracingAllocator::raw_alloc(std::size_t size) {
  return raw_alloc_with(size, nullptr, [this, size] { return native_.raw_alloc(size); });
}

void* TracingAllocator::raw_alloc_with_stream(std::size_t size, cudaStream_t stream) {
  return raw_alloc_with(
      size, &stream, [this, size, stream] { return native_.raw_alloc_with_stream(size, stream); });
}

void TracingAllocator::raw_delete(void* block) {
  if (block == nullptr || !caches()) return native_.raw_delete(block);
  const auto [ring, attention] = recorder_.arrive();
  if (ring == nullptr) {
    const Leaving at_end;
    recorder_.freeing_unrecorded(block);
    count_skipped();
    native_.raw_delete(block);
    return;
  }
  const std::uint64_t begin = recorder_.freeing(ring, attention, block);
  try {
    native_.raw_delete(block);
  } catch (...) {  // not a block of its own
    recorder_.abandoned();
    throw;
  }
  recorder_.freed(ring, begin);
}

// The native allocator ignores a block whose deleter isn't its own: show it this one under its own.
void TracingAllocator::recordStream(const c10::DataPtr& block, c10::cuda::CUDAStream stream) {
  if (block.get() == nullptr || block.get_deleter() != &delete_traced) {
    native_.recordStream(block, stream);
    return;
  }
  c10::DataPtr shown(block.get(), block.get_context(), native_deleter_, block.device());
  struct Release {  // also when the call throws: `shown` owns nothing
    c10::DataPtr& shown;
    ~Release() { (void)shown.release_context(); }
  } const release{shown};
  native_.recordStream(shown, stream);
  recorder_.stream_used(active_ring(), block.get(), block.device().index(), stream.stream());
}

void TracingAllocator::init(int device_count) {
  native_.init(device_count);
  take_place_in_device_table(&native_, this);
  recorder_.initialized(device_count);
  describe_devices(device_count);
}

bool TracingAllocator::initialized() { return !pretends_uninitialized_ && native_.initialized(); }

void TracingAllocator::setMemoryFraction(double fraction, DeviceIndex device) {
  const ChangingSegments changing;
  native_.setMemoryFraction(fraction, device);
  recorder_.released(active_ring(), device);
}

#if GPUMEMTRACE_TORCH_AT_LEAST(2, 8)
void TracingAllocator::emptyCache(MempoolId_t pool) {
  const ChangingSegments changing;
  const std::uint64_t since_ns = capture::monotonic_ns();
  native_.emptyCache(pool);
#else
void TracingAllocator::emptyCache() {
  const ChangingSegments changing;
  const std::uint64_t since_ns = capture::monotonic_ns();
  native_.emptyCache();
#endif
  recorder_.cache_emptied(active_ring(), capture::monotonic_ns() - since_ns);
}

void TracingAllocator::resetAccumulatedStats(DeviceIndex device) {
  native_.resetAccumulatedStats(device);
  recorder_.counters_reset(device);
}

void TracingAllocator::beginAllocateToPool(DeviceIndex device, MempoolId_t pool,
                                           StreamFilter filter) {
  native_.beginAllocateToPool(device, pool, std::move(filter));
  recorder_.pool_event(active_ring(), Kind::kPoolBegin, device, pool);
}

void TracingAllocator::endAllocateToPool(DeviceIndex device, MempoolId_t pool) {
  native_.endAllocateToPool(device, pool);
  recorder_.pool_event(active_ring(), Kind::kPoolEnd, device, pool);
}

void TracingAllocator::releasePool(DeviceIndex device, MempoolId_t pool) {
  const ChangingSegments changing;
  native_.releasePool(device, pool);
  recorder_.released(active_ring(), device);
}

#if GPUMEMTRACE_TORCH_AT_LEAST(2, 10)
void TracingAllocator::setNoSplit(DeviceIndex device, MempoolId_t pool) {
  native_.setNoSplit(device, pool);
  recorder_.distrust_rounding();
}
#endif

namespace {

// Sizes and streams of the blocks that `created` names. A size of 0 means that torch's history is on
// (see take_snapshot): the totals told afterwards put the lines right.
std::vector<KnownBlock> describe(CUDAAllocator& native, const std::vector<c10::DataPtr>& created) {
  std::vector<KnownBlock> blocks;
  if (created.empty()) return blocks;
  const std::vector<KnownBlock> known = take_snapshot(native).blocks;
  for (const c10::DataPtr& block : created) {
    const auto address = reinterpret_cast<std::uintptr_t>(block.get());
    const auto found =
        std::lower_bound(known.begin(), known.end(), address,
                         [](const KnownBlock& a, std::uintptr_t b) { return a.address < b; });
    const bool is_known = found != known.end() && found->address == address;
    blocks.push_back(is_known ? *found : KnownBlock{address, 0, 0, 0, block.device().index()});
  }
  return blocks;
}

}  // namespace

// CUDA graph trees: frees what the pool holds and hands out what an earlier state held, both without
// calling anybody's deleter.
ForwardingAllocator::CheckpointDelta TracingAllocator::setCheckpointPoolState(
    DeviceIndex device, std::shared_ptr<AllocatorState> state) {
  Ring* const ring = recorder_.arrive().ring;
  struct Abandon {  // it allocates by itself, and may miss the cache
    Recorder& recorder;
    ~Abandon() { recorder.abandoned(); }
  } const at_end{recorder_};
  const ChangingSegments changing;
  CheckpointDelta delta = native_.setCheckpointPoolState(device, std::move(state));
  for (c10::DataPtr& block : delta.dataptrs_allocd) {
    (void)block.compare_exchange_deleter(native_deleter_, &delete_traced);
  }
  std::vector<KnownBlock> created;
  if (ring != nullptr) {
    try {
      created = describe(native_, delta.dataptrs_allocd);
    } catch (...) {
      created.clear();  // out of host memory; torch's own call has succeeded
    }
  }
  recorder_.pool_restored(ring, device, delta.ptrs_freed, created);
  return delta;
}

}  // namespace gpumemtrace::hook
