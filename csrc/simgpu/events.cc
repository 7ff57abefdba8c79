#include "event.h"

namespace simgpu {
namespace {

Event& event_of(cudaEvent_t handle) { return *reinterpret_cast<Event*>(handle); }

cudaError_t record(Event& event, Stream& stream) {
  if (const cudaError_t error = activate(stream.device); error != cudaSuccess) return error;
  const std::lock_guard lock(event.mutex);
  event.stream = &stream;
  event.at = stream.clock_at_last.load(std::memory_order_relaxed);
  event.capture = capture_of(stream);
  if (event.capture != nullptr) event.progress = progress_of(*event.capture, stream);
  clock_gettime(CLOCK_MONOTONIC, &event.time);
  return cudaSuccess;
}

// An event of a capture has no moment: asking for it spoils the capture.
cudaError_t refuse_captured_event(const Event& event) {
  if (event.capture == nullptr) return refuse_while_capturing();
  event.capture->invalid = true;
  return fail(cudaErrorCapturedEvent);
}

float milliseconds_between(const timespec& a, const timespec& b) {
  return static_cast<float>(static_cast<double>(b.tv_sec - a.tv_sec) * 1e3 +
                            static_cast<double>(b.tv_nsec - a.tv_nsec) * 1e-6);
}

}  // namespace
}  // namespace simgpu

using namespace simgpu;

cudaError_t cudaEventCreate(cudaEvent_t* out) { return cudaEventCreateWithFlags(out, 0); }

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned int flags) {
  if (const cudaError_t error = activate(current_device()); error != cudaSuccess) return error;
  auto* event = new Event;
  event->flags = flags;
  *out = reinterpret_cast<cudaEvent_t>(event);
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete reinterpret_cast<Event*>(event);
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return record(event_of(event), stream_of(stream));
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int) {
  return record(event_of(event), stream_of(stream));
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  Event& event = event_of(handle);
  const std::lock_guard lock(event.mutex);
  if (const cudaError_t error = refuse_captured_event(event); error != cudaSuccess) return error;
  if (event.stream == nullptr) return cudaSuccess;
  return is_done(device(event.stream->device), event.at) ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  Event& event = event_of(handle);
  const std::lock_guard lock(event.mutex);
  if (const cudaError_t error = refuse_captured_event(event); error != cudaSuccess) return error;
  if (event.stream != nullptr) finish_all(device(event.stream->device));
  return cudaSuccess;
}

// The host's time between the two records: kernels take none.
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  Event& from = event_of(start);
  Event& to = event_of(end);
  constexpr unsigned untimed = cudaEventDisableTiming;
  if (from.stream == nullptr || to.stream == nullptr || ((from.flags | to.flags) & untimed) != 0) {
    return fail(cudaErrorInvalidResourceHandle);
  }
  *milliseconds = milliseconds_between(from.time, to.time);
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t handle, unsigned int) {
  Event& event = event_of(handle);
  Stream& waiting = stream_of(stream);
  const std::lock_guard lock(event.mutex);
  if (event.stream == nullptr) return cudaSuccess;
  Capture* from = event.capture;
  if (from != nullptr && from->active) return join_capture(*from, waiting, event.progress);
  if (Capture* current = capture_of(waiting); current != nullptr) {
    current->invalid = true;  // a graph can't wait for what is not in it
    return fail(cudaErrorStreamCaptureIsolation);
  }
  if (config().lag != 0) {  // what comes after on this stream is not done before the event is
    uint64_t at = waiting.clock_at_last.load();
    while (at < event.at && !waiting.clock_at_last.compare_exchange_weak(at, event.at)) {
    }
  }
  return cudaSuccess;
}
