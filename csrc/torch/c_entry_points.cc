// The stock way in, for frameworks that insist on it:
//
//   torch.cuda.memory.CUDAPluggableAllocator(
//       gpumemtrace.library_path(), "gpumemtrace_malloc", "gpumemtrace_free")
//
// Memory still comes from torch's native caching allocator, and each call is recorded. But torch's
// own wrapper stands in front, and limits what a program can do; use gpumemtrace.TracingAllocator,
// which has none of these limits, wherever you can:
//   - torch.cuda.memory_allocated, memory_stats, memory_summary, memory_snapshot, the peak and history
//     functions, CUDA graphs, MemPool and IPC raise;
//   - empty_cache and set_per_process_memory_fraction do nothing;
//   - record_stream does nothing: memory that another stream still uses is handed out again, so
//     programs that rely on it compute wrong results.
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <sys/types.h>

#include <mutex>

#include "capture/producer.h"
#include "torch/device_memory.h"
#include "torch/hook.h"
#include "trace/export.h"

namespace gpumemtrace::hook {
namespace {

// torch initialises the wrapper in place of the native allocator.
void ensure_native_is_up(Hook& hook) {
  static std::once_flag once;
  std::call_once(once, [&hook] {
    const int devices = c10::cuda::device_count();
    if (!hook.native().initialized()) hook.native().init(devices);
    hook.recorder().initialized(devices);
    describe_devices(devices);
  });
}

}  // namespace
}  // namespace gpumemtrace::hook

// Returns nullptr for size 0 alone; throws c10::OutOfMemoryError, which torch turns into
// torch.OutOfMemoryError, when memory runs out.
extern "C" GPUMEMTRACE_API void* gpumemtrace_malloc(ssize_t size, int device, cudaStream_t stream) {
  auto& hook = gpumemtrace::hook::Hook::instance();
  gpumemtrace::hook::ensure_native_is_up(hook);
  const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device));
  return hook.allocator()->raw_alloc_with_stream(static_cast<std::size_t>(size), stream);
}

// Size, device and stream are torch's bookkeeping; the native allocator has its own.
extern "C" GPUMEMTRACE_API void gpumemtrace_free(void* block, ssize_t /*size*/, int /*device*/,
                                                 cudaStream_t /*stream*/) {
  if (block != nullptr) gpumemtrace::hook::Hook::instance().allocator()->raw_delete(block);
}
