#include "capture.h"
#include "report.h"
#include "stream.h"

namespace simgpu {
namespace {

Stream* make_default_streams() {
  auto* streams = new Stream[kMaxDevices];  // leaked: calls come in until the process is gone
  for (int i = 0; i < kMaxDevices; ++i) streams[i].device = i;
  return streams;
}

cudaError_t create(cudaStream_t* out, unsigned flags, int priority) {
  if (const cudaError_t error = activate(current_device()); error != cudaSuccess) return error;
  auto* stream = new Stream;
  stream->device = current_device();
  stream->priority = priority;
  stream->flags = flags;
  *out = reinterpret_cast<cudaStream_t>(stream);
  return cudaSuccess;
}

// Runs it now, or keeps it for the replays of the graph that is being captured.
cudaError_t call_host_function(cudaStream_t handle, cudaHostFn_t function, void* argument) {
  Stream& stream = stream_of(handle);
  submit(stream);
  if (Capture* capture = capture_of(stream)) {
    const std::lock_guard lock(capture->body->mutex);
    capture->body->host_functions.emplace_back(function, argument);
    return cudaSuccess;
  }
  function(argument);
  return cudaSuccess;
}

}  // namespace

Stream& stream_of(void* handle) noexcept {
  static Stream* const defaults = make_default_streams();
  if (reinterpret_cast<uintptr_t>(handle) > 2) return *static_cast<Stream*>(handle);
  return defaults[current_device()];
}

bool is_done(const Device& d, uint64_t at) noexcept {
  return config().lag == 0 || at <= d.finished.load(std::memory_order_relaxed) ||
         d.clock.load(std::memory_order_relaxed) >= at + config().lag;
}

void finish_all(Device& d) noexcept {
  d.finished.store(d.clock.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

}  // namespace simgpu

using namespace simgpu;

cudaError_t cudaStreamCreate(cudaStream_t* out) { return create(out, 0, 0); }

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* out, unsigned int flags) {
  return create(out, flags, 0);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* out, unsigned int flags, int priority) {
  return create(out, flags, priority);
}

cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }  // see Stream

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  *priority = stream_of(stream).priority;
  return cudaSuccess;
}

cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned int* flags) {
  *flags = stream_of(stream).flags;
  return cudaSuccess;
}

#if CUDART_VERSION >= 12080
cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* ordinal) {
  *ordinal = stream_of(stream).device;
  return cudaSuccess;
}
#endif

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  const Stream& stream = stream_of(handle);
  if (const cudaError_t error = refuse_if_captured(stream); error != cudaSuccess) return error;
  const bool done = is_done(device(stream.device), stream.clock_at_last.load());
  return done ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  const Stream& stream = stream_of(handle);
  if (const cudaError_t error = activate(stream.device); error != cudaSuccess) return error;
  if (const cudaError_t error = refuse_if_captured(stream); error != cudaSuccess) return error;
  finish_all(device(stream.device));
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void) {
  if (const cudaError_t error = activate(current_device()); error != cudaSuccess) return error;
  if (const cudaError_t error = refuse_while_capturing(); error != cudaSuccess) return error;
  finish_all(device(current_device()));
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* argument) {
  return call_host_function(stream, function, argument);
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback,
                                  void* argument, unsigned int) {
  if (const cudaError_t error = refuse_if_captured(stream_of(stream)); error != cudaSuccess) {
    return error;
  }
  submit(stream_of(stream));
  callback(stream, cudaSuccess, argument);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return cudaSuccess;
}

CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr address, cuuint32_t value,
                              unsigned int) {
  submit(stream_of(stream));
  *reinterpret_cast<cuuint32_t*>(address) = value;
  return CUDA_SUCCESS;
}
