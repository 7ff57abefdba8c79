// An allocator that is another one under a new name: every virtual goes to `native_`.
//
// This is what makes tracing invisible. A plain pluggable allocator answers "not supported" to
// statistics, graphs, pools, history and IPC, and ignores record_stream; this one has the native
// allocator answer. TracingAllocator overrides those few calls that are recorded.
//
// The list of virtuals differs between torch versions: each is here under the first version that has
// it, so a build against a torch that lacks one, or has another signature, does not compile.
// tests/test_hook_virtuals.py fails when torch has one that is not here. `copy_data` can't be
// overridden (final in the base); it does there what the native allocator does.
#pragma once

#include <torch/csrc/cuda/CUDAPluggableAllocator.h>

#include <functional>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "torch/torch_compat.h"

namespace gpumemtrace::hook {

class ForwardingAllocator : public torch::cuda::CUDAPluggableAllocator::CUDAPluggableAllocator {
 public:
  using DeviceIndex = c10::DeviceIndex;
  using DeviceStats = c10::CachingDeviceAllocator::DeviceStats;
  using SnapshotInfo = c10::cuda::CUDACachingAllocator::SnapshotInfo;
  using AllocatorState = c10::cuda::CUDACachingAllocator::AllocatorState;
  using CheckpointDelta = c10::cuda::CUDACachingAllocator::CheckpointDelta;
  using ShareableHandle = c10::cuda::CUDACachingAllocator::ShareableHandle;
  using CreateContextFn = c10::cuda::CUDACachingAllocator::CreateContextFn;
  using RecordContext = c10::cuda::CUDACachingAllocator::RecordContext;
  using OutOfMemoryObserver = c10::cuda::CUDACachingAllocator::OutOfMemoryObserver;
  using AllocatorTraceTracker = c10::cuda::CUDACachingAllocator::AllocatorTraceTracker;
  using StreamFilter = std::function<bool(cudaStream_t)>;

  explicit ForwardingAllocator(CUDAAllocator& native)
      : CUDAPluggableAllocator(
            [&native](std::size_t size, int, cudaStream_t stream) {
              return native.raw_alloc_with_stream(size, stream);
            },
            [&native](void* block, std::size_t, int, cudaStream_t) { native.raw_delete(block); }),
        native_(native) {}

  // --- memory ---
  c10::DataPtr allocate(std::size_t size) override { return native_.allocate(size); }
  c10::DeleterFnPtr raw_deleter() const override { return native_.raw_deleter(); }
  bool is_simple_data_ptr(const c10::DataPtr& block) const override {
    return native_.is_simple_data_ptr(block);
  }
  void* raw_alloc(std::size_t size) override { return native_.raw_alloc(size); }
  void* raw_alloc_with_stream(std::size_t size, cudaStream_t stream) override {
    return native_.raw_alloc_with_stream(size, stream);
  }
  void raw_delete(void* block) override { native_.raw_delete(block); }
  void* getBaseAllocation(void* block, std::size_t* size) override {
    return native_.getBaseAllocation(block, size);
  }
  void recordStream(const c10::DataPtr& block, c10::cuda::CUDAStream stream) override {
    native_.recordStream(block, stream);
  }
#if GPUMEMTRACE_TORCH_AT_LEAST(2, 9)
  void recordStream(const c10::DataPtr& block, c10::Stream stream) override {
    recordStream(block, c10::cuda::CUDAStream(stream));
  }
#endif
#if GPUMEMTRACE_TORCH_AT_LEAST(2, 13)
  c10::DataPtr allocateWithAddress(std::size_t size, void* address) override {
    return native_.allocateWithAddress(size, address);
  }
#endif

  // --- set-up and limits ---
  void init(int device_count) override { native_.init(device_count); }
  bool initialized() override { return native_.initialized(); }
  void enable(bool value) override { native_.enable(value); }
  bool isEnabled() const override { return native_.isEnabled(); }
  std::string name() override { return native_.name(); }
  double getMemoryFraction(DeviceIndex device) override {
    return native_.getMemoryFraction(device);
  }
  void setMemoryFraction(double fraction, DeviceIndex device) override {
    native_.setMemoryFraction(fraction, device);
  }

  // --- cache and statistics ---
#if GPUMEMTRACE_TORCH_AT_LEAST(2, 8)
  void emptyCache(MempoolId_t pool = {0, 0}) override { native_.emptyCache(pool); }
#else
  void emptyCache() override { native_.emptyCache(); }
#endif
  void cacheInfo(DeviceIndex device, std::size_t* largest) override {
    native_.cacheInfo(device, largest);
  }
  DeviceStats getDeviceStats(DeviceIndex device) override { return native_.getDeviceStats(device); }
  void resetAccumulatedStats(DeviceIndex device) override { native_.resetAccumulatedStats(device); }
  void resetPeakStats(DeviceIndex device) override { native_.resetPeakStats(device); }
#if GPUMEMTRACE_TORCH_AT_LEAST(2, 11)
  SnapshotInfo snapshot(MempoolId_t pool = {0, 0}, bool include_traces = true) override {
    return native_.snapshot(pool, include_traces);
  }
#elif GPUMEMTRACE_TORCH_AT_LEAST(2, 8)
  SnapshotInfo snapshot(MempoolId_t pool = {0, 0}) override { return native_.snapshot(pool); }
#else
  SnapshotInfo snapshot() override { return native_.snapshot(); }
#endif
#if GPUMEMTRACE_TORCH_AT_LEAST(2, 10)
  std::pair<std::size_t, std::size_t> getMemoryInfo(DeviceIndex device) override {
    return native_.getMemoryInfo(device);
  }
  std::vector<c10::cuda::CUDACachingAllocator::StreamSegmentSize> getExpandableSegmentSizes(
      DeviceIndex device) override {
    return native_.getExpandableSegmentSizes(device);
  }
#endif

  // --- private pools and graphs ---
  void beginAllocateToPool(DeviceIndex device, MempoolId_t pool, StreamFilter filter) override {
    native_.beginAllocateToPool(device, pool, std::move(filter));
  }
  void endAllocateToPool(DeviceIndex device, MempoolId_t pool) override {
    native_.endAllocateToPool(device, pool);
  }
  void releasePool(DeviceIndex device, MempoolId_t pool) override {
    native_.releasePool(device, pool);
  }
  int getPoolUseCount(DeviceIndex device, MempoolId_t pool) override {
    return native_.getPoolUseCount(device, pool);
  }
  bool checkPoolLiveAllocations(DeviceIndex device, MempoolId_t pool,
                                const std::unordered_set<void*>& expected) override {
    return native_.checkPoolLiveAllocations(device, pool, expected);
  }
  std::shared_ptr<AllocatorState> getCheckpointState(DeviceIndex device,
                                                     MempoolId_t pool) override {
    return native_.getCheckpointState(device, pool);
  }
  CheckpointDelta setCheckpointPoolState(DeviceIndex device,
                                         std::shared_ptr<AllocatorState> state) override {
    return native_.setCheckpointPoolState(device, std::move(state));
  }
#if GPUMEMTRACE_TORCH_AT_LEAST(2, 11)
  void createOrIncrefPool(DeviceIndex device, MempoolId_t pool,
                          std::shared_ptr<CUDAAllocator> allocator = nullptr) override {
    native_.createOrIncrefPool(device, pool, std::move(allocator));
  }
  void setUseOnOOM(DeviceIndex device, MempoolId_t pool, bool use_on_oom) override {
    native_.setUseOnOOM(device, pool, use_on_oom);
  }
#elif GPUMEMTRACE_TORCH_AT_LEAST(2, 8)
  void createOrIncrefPool(DeviceIndex device, MempoolId_t pool,
                          CUDAAllocator* allocator = nullptr) override {
    native_.createOrIncrefPool(device, pool, allocator);
  }
  void setUseOnOOM(DeviceIndex device, MempoolId_t pool) override {
    native_.setUseOnOOM(device, pool);
  }
#else
  void ensureExistsAndIncrefPool(DeviceIndex device, MempoolId_t pool) override {
    native_.ensureExistsAndIncrefPool(device, pool);
  }
#endif
#if GPUMEMTRACE_TORCH_AT_LEAST(2, 10)
  void setNoSplit(DeviceIndex device, MempoolId_t pool) override {
    native_.setNoSplit(device, pool);
  }
#endif
#if GPUMEMTRACE_TORCH_AT_LEAST(2, 13)
  void markCaptureBegin(DeviceIndex device) override { native_.markCaptureBegin(device); }
  void markCaptureEnd(DeviceIndex device) override { native_.markCaptureEnd(device); }
#endif

  // --- other processes and devices ---
  ShareableHandle shareIpcHandle(void* block) override { return native_.shareIpcHandle(block); }
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override {
    return native_.getIpcDevPtr(std::move(handle));
  }
  void enablePeerAccess(DeviceIndex device, DeviceIndex to_access) override {
    native_.enablePeerAccess(device, to_access);
  }
  cudaError_t memcpyAsync(void* to, int to_device, const void* from, int from_device,
                          std::size_t size, cudaStream_t stream, bool p2p_enabled) override {
    return native_.memcpyAsync(to, to_device, from, from_device, size, stream, p2p_enabled);
  }

  // --- torch's own recorder ---
  bool isHistoryEnabled() override { return native_.isHistoryEnabled(); }
#if GPUMEMTRACE_TORCH_AT_LEAST(2, 11)
  void recordHistory(bool enabled, CreateContextFn context, std::size_t max_entries,
                     RecordContext when, bool clear,
                     const std::vector<std::string>& skip_actions) override {
    native_.recordHistory(enabled, context, max_entries, when, clear, skip_actions);
  }
#elif GPUMEMTRACE_TORCH_AT_LEAST(2, 8)
  void recordHistory(bool enabled, CreateContextFn context, std::size_t max_entries,
                     RecordContext when, bool clear) override {
    native_.recordHistory(enabled, context, max_entries, when, clear);
  }
#else
  void recordHistory(bool enabled, CreateContextFn context, std::size_t max_entries,
                     RecordContext when) override {
    native_.recordHistory(enabled, context, max_entries, when);
  }
#endif
  void recordAnnotation(
      const std::vector<std::pair<std::string, std::string>>& annotation) override {
    native_.recordAnnotation(annotation);
  }
  void attachOutOfMemoryObserver(OutOfMemoryObserver observer) override {
    native_.attachOutOfMemoryObserver(std::move(observer));
  }
  void attachAllocatorTraceTracker(AllocatorTraceTracker tracker) override {
    native_.attachAllocatorTraceTracker(std::move(tracker));
  }
#if GPUMEMTRACE_TORCH_AT_LEAST(2, 8)
  void pushCompileContext(std::string& context) override { native_.pushCompileContext(context); }
  void popCompileContext() override { native_.popCompileContext(); }
#endif
#if GPUMEMTRACE_TORCH_AT_LEAST(2, 10)
  void setUserMetadata(const std::string& metadata) override { native_.setUserMetadata(metadata); }
  std::string getUserMetadata() override { return native_.getUserMetadata(); }
#endif
#if GPUMEMTRACE_TORCH_AT_LEAST(2, 12)
  void attachOomRejectionObserver(
      c10::cuda::CUDACachingAllocator::OomRejectionObserver observer) override {
    native_.attachOomRejectionObserver(std::move(observer));
  }
  std::shared_ptr<c10::GatheredContext> getContextForPointer(const void* block) override {
    return native_.getContextForPointer(block);
  }
#endif
#if GPUMEMTRACE_TORCH_AT_LEAST(2, 14)
  bool supportsUserMetadata() override { return native_.supportsUserMetadata(); }
  void annotateMemory(const void* block, const std::string& metadata) override {
    native_.annotateMemory(block, metadata);
  }
#endif

 protected:
  CUDAAllocator& native_;
};

}  // namespace gpumemtrace::hook
