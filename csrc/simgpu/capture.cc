#include "capture.h"

#include <algorithm>

#include "fork.h"

namespace simgpu {
namespace {

struct Ongoing {
  std::mutex mutex;
  std::vector<Capture*> captures;
  std::atomic<int> count{0};  // its size, to be read without the lock
};

Ongoing& ongoing() {
  static Ongoing* const all = [] {
    auto* made = new Ongoing;  // leaked: calls come in until the process is gone
    hold_across_fork(made->mutex);
    return made;
  }();
  return *all;
}

constinit thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;
// Identifies the thread that began a capture.
thread_local std::vector<Capture*> begun_here;

bool forbids(const Capture& capture) {
  if (thread_mode == cudaStreamCaptureModeRelaxed) return false;
  const bool mine = std::find(begun_here.begin(), begun_here.end(), &capture) != begun_here.end();
  if (mine) return capture.mode != cudaStreamCaptureModeRelaxed;
  return thread_mode == cudaStreamCaptureModeGlobal && capture.mode == cudaStreamCaptureModeGlobal;
}

void leave(Capture& capture) {
  capture.active.store(false, std::memory_order_release);
  std::erase(begun_here, &capture);
  Ongoing& all = ongoing();
  {
    const std::lock_guard lock(all.mutex);
    std::erase(all.captures, &capture);
    all.count.store(static_cast<int>(all.captures.size()), std::memory_order_relaxed);
  }
  const std::lock_guard lock(capture.mutex);
  for (Stream* stream : capture.joined) stream->capture.store(nullptr, std::memory_order_relaxed);
}

// Whether everything on the streams that joined flows back into the one that began.
bool is_joined_back(Capture& capture) {
  const std::lock_guard lock(capture.mutex);
  const Progress& seen = capture.behind[capture.origin];
  return std::all_of(capture.joined.begin(), capture.joined.end(), [&](const Stream* stream) {
    const auto found = seen.find(stream);
    return stream == capture.origin ||
           (found != seen.end() && found->second >= stream->submitted.load());
  });
}

cudaError_t begin(Stream& stream, Graph* graph, cudaStreamCaptureMode mode) {
  static std::atomic<uint64_t> ids{1};
  if (stream.capture.load() != nullptr) return fail(cudaErrorIllegalState);
  auto* capture = new Capture;
  capture->id = ids.fetch_add(1);
  capture->origin = &stream;
  capture->graph = graph != nullptr ? graph : new Graph;
  capture->body = capture->graph->body;
  capture->mode = mode;
  capture->joined.push_back(&stream);
  begun_here.push_back(capture);
  Ongoing& all = ongoing();
  {
    const std::lock_guard lock(all.mutex);
    all.captures.push_back(capture);
    all.count.store(static_cast<int>(all.captures.size()), std::memory_order_relaxed);
  }
  stream.capture.store(capture);
  return cudaSuccess;
}

}  // namespace

void add_to_capture(Capture& capture) noexcept {
  capture.body->nodes.fetch_add(1, std::memory_order_relaxed);
}

Capture* capture_of(const Stream& stream) noexcept {
  return stream.capture.load(std::memory_order_relaxed);
}

Progress progress_of(Capture& capture, const Stream& stream) noexcept {
  const std::lock_guard lock(capture.mutex);
  Progress progress = capture.behind[&stream];
  progress[&stream] = stream.submitted.load();
  return progress;
}

cudaError_t join_capture(Capture& capture, Stream& stream, const Progress& progress) noexcept {
  Capture* current = capture_of(stream);
  if (current != nullptr && current != &capture) {
    current->invalid = capture.invalid = true;
    return fail(cudaErrorStreamCaptureMerge);
  }
  const std::lock_guard lock(capture.mutex);
  if (current == nullptr) {
    capture.joined.push_back(&stream);
    stream.capture.store(&capture);
  }
  Progress& behind = capture.behind[&stream];
  for (const auto& [other, submitted] : progress) {
    behind[other] = std::max(behind[other], submitted);
  }
  return cudaSuccess;
}

cudaError_t refuse_while_capturing() noexcept {
  Ongoing& all = ongoing();
  if (all.count.load(std::memory_order_relaxed) == 0) [[likely]]
    return cudaSuccess;
  bool refused = false;
  const std::lock_guard lock(all.mutex);
  for (Capture* capture : all.captures) {
    if (!forbids(*capture)) continue;
    capture->invalid = true;
    refused = true;
  }
  return refused ? fail(cudaErrorStreamCaptureUnsupported) : cudaSuccess;
}

cudaError_t refuse_if_captured(const Stream& stream) noexcept {
  Capture* capture = capture_of(stream);
  if (capture == nullptr) return refuse_while_capturing();
  capture->invalid = true;
  return fail(cudaErrorStreamCaptureUnsupported);
}

}  // namespace simgpu

using namespace simgpu;

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return begin(stream_of(stream), nullptr, mode);
}

cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph,
                                          const cudaGraphNode_t*, const cudaGraphEdgeData*, size_t,
                                          cudaStreamCaptureMode mode) {
  return begin(stream_of(stream), reinterpret_cast<Graph*>(graph), mode);
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  Capture* capture = capture_of(stream_of(stream));
  if (capture == nullptr) return fail(cudaErrorIllegalState);
  if (capture->origin != &stream_of(stream)) return fail(cudaErrorStreamCaptureUnmatched);
  const bool joined_back = is_joined_back(*capture);
  leave(*capture);
  if (capture->invalid) return fail(cudaErrorStreamCaptureInvalidated);
  if (!joined_back) return fail(cudaErrorStreamCaptureUnjoined);
  *graph = reinterpret_cast<cudaGraph_t>(capture->graph);
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  const Capture* capture = capture_of(stream_of(stream));
  *status = capture == nullptr ? cudaStreamCaptureStatusNone
            : capture->invalid ? cudaStreamCaptureStatusInvalidated
                               : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

#if CUDART_VERSION >= 13000
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData** edges, size_t* count) {
  if (edges != nullptr) *edges = nullptr;
#else
cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                        unsigned long long* id, cudaGraph_t* graph,
                                        const cudaGraphNode_t** dependencies, size_t* count) {
#endif
  const Capture* capture = capture_of(stream_of(stream));
  if (capture != nullptr && id != nullptr) *id = capture->id;
  if (capture != nullptr && graph != nullptr)
    *graph = reinterpret_cast<cudaGraph_t>(capture->graph);
  if (dependencies != nullptr) *dependencies = nullptr;
  if (count != nullptr) *count = 0;
  return cudaStreamIsCapturing(stream, status);
}

#if CUDART_VERSION >= 13000
cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t, cudaGraphNode_t*,
                                                const cudaGraphEdgeData*, size_t, unsigned int) {
#else
cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t, cudaGraphNode_t*, size_t,
                                                unsigned int) {
#endif
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, thread_mode);
  return cudaSuccess;
}
