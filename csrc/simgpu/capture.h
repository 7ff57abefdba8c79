// Stream capture: which streams belong to it, what it saw, and the calls it forbids.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "stream.h"

namespace simgpu {

struct UserObject {
  cudaHostFn_t destroy;
  void* pointer;
  std::atomic<int64_t> references;
};

// What replaying needs; shared by a graph and what was instantiated from it.
struct GraphBody {
  std::atomic<uint64_t> nodes{0};
  std::mutex mutex;  // guards host_functions
  std::vector<std::pair<cudaHostFn_t, void*>> host_functions;
};

struct Graph {
  std::shared_ptr<GraphBody> body = std::make_shared<GraphBody>();
  std::vector<std::pair<UserObject*, unsigned>> user_objects;
};

// How far each stream had come, in submissions: says what an event in a capture stands behind.
using Progress = std::map<const Stream*, uint64_t>;

// Never freed: events keep pointing to it.
struct Capture {
  uint64_t id = 0;
  Stream* origin = nullptr;
  Graph* graph = nullptr;
  std::shared_ptr<GraphBody> body;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::atomic<bool> active{true};
  std::atomic<bool> invalid{false};  // something forbidden happened; ending it fails

  std::mutex mutex;  // guards what follows
  std::vector<Stream*> joined;
  std::map<const Stream*, Progress> behind;  // what each stream has waited for
};

// Null unless `stream` is being captured right now.
Capture* capture_of(const Stream& stream) noexcept;

// What an event recorded now on a captured stream stands behind.
Progress progress_of(Capture& capture, const Stream& stream) noexcept;
// `stream` waits for such an event, and joins the capture if it was not part of it.
cudaError_t join_capture(Capture& capture, Stream& stream, const Progress& progress) noexcept;

// CUDA forbids some calls (allocation, synchronisation) while a capture is going on, depending on
// the capture's mode and the thread's. An error here has invalidated the captures concerned.
cudaError_t refuse_while_capturing() noexcept;
// The same for a call that concerns one stream, forbidden whatever the mode.
cudaError_t refuse_if_captured(const Stream& stream) noexcept;

}  // namespace simgpu
