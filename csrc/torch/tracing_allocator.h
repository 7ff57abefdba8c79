// The native allocator, with a record kept of what it does.
//
// Overrides of ForwardingAllocator that record; each forwards first and records then, except for a
// free, which is recorded before the block can be handed out again. Results and exceptions are those
// of the native allocator, untouched.
#pragma once

#include "torch/forwarding_allocator.h"
#include "torch/recorder.h"

namespace gpumemtrace::hook {

class TracingAllocator final : public ForwardingAllocator {
 public:
  // Made once a process and never destroyed; `recorder` likewise.
  TracingAllocator(CUDAAllocator& native, Recorder& recorder);

  c10::DataPtr allocate(std::size_t size) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void* raw_alloc(std::size_t size) override;
  void* raw_alloc_with_stream(std::size_t size, cudaStream_t stream) override;
  void raw_delete(void* block) override;
  using ForwardingAllocator::recordStream;
  void recordStream(const c10::DataPtr& block, c10::cuda::CUDAStream stream) override;
#if GPUMEMTRACE_TORCH_AT_LEAST(2, 13)
  c10::DataPtr allocateWithAddress(std::size_t size, void* address) override;
#endif

  void init(int device_count) override;
  bool initialized() override;
  void setMemoryFraction(double fraction, DeviceIndex device) override;
#if GPUMEMTRACE_TORCH_AT_LEAST(2, 8)
  void emptyCache(MempoolId_t pool = {0, 0}) override;
#else
  void emptyCache() override;
#endif
  void resetAccumulatedStats(DeviceIndex device) override;

  void beginAllocateToPool(DeviceIndex device, MempoolId_t pool, StreamFilter filter) override;
  void endAllocateToPool(DeviceIndex device, MempoolId_t pool) override;
  void releasePool(DeviceIndex device, MempoolId_t pool) override;
  CheckpointDelta setCheckpointPoolState(DeviceIndex device,
                                         std::shared_ptr<AllocatorState> state) override;
#if GPUMEMTRACE_TORCH_AT_LEAST(2, 10)
  void setNoSplit(DeviceIndex device, MempoolId_t pool) override;
#endif

 private:
  friend class LateSwap;

  // Whether the native allocator keeps what is given back. If not, its blocks come from cudaMalloc
  // and go to cudaFree: nothing to record.
  bool caches() const { return native_.raw_deleter() == native_deleter_; }

  template <class Allocate>
  c10::DataPtr allocate_with(std::size_t size, const Allocate& allocate);
  template <class Allocate>
  void* raw_alloc_with(std::size_t size, const cudaStream_t* stream, const Allocate& allocate);

  Recorder& recorder_;
  const c10::DeleterFnPtr native_deleter_;  // nullptr: caching is off for good
  std::atomic<bool> pretends_uninitialized_{false};
};

}  // namespace gpumemtrace::hook
