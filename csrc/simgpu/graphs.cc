// CUDA graphs: what was captured is counted and can be "replayed", which submits one piece of work
// and calls the host functions again.

#include <cstdio>

#include "capture.h"
#include "contents.h"
#include "report.h"

namespace simgpu {
namespace {

struct Executable {
  std::shared_ptr<GraphBody> body;
};

cudaError_t instantiate(cudaGraphExec_t* out, cudaGraph_t graph) {
  count_approximation("cudaGraphInstantiate",
                      "the device memory that the driver keeps for a graph is not counted");
  *out = reinterpret_cast<cudaGraphExec_t>(new Executable{reinterpret_cast<Graph*>(graph)->body});
  return cudaSuccess;
}

void drop(UserObject* object, int64_t references) {
  if (object->references.fetch_sub(references) > references) return;
  object->destroy(object->pointer);
  delete object;
}

}  // namespace
}  // namespace simgpu

using namespace simgpu;

cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned int) {
  *graph = reinterpret_cast<cudaGraph_t>(new Graph);
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t handle) {
  auto* graph = reinterpret_cast<Graph*>(handle);
  for (const auto& [object, references] : graph->user_objects) drop(object, references);
  delete graph;
  return cudaSuccess;
}

// Nodes have no properties of their own: a handle is a number that is unique in the process.
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  const uint64_t there = reinterpret_cast<Graph*>(graph)->body->nodes.load();
  if (nodes == nullptr) {
    *count = there;
    return cudaSuccess;
  }
  const size_t wanted = *count;
  for (size_t i = 0; i < wanted; ++i) {
    nodes[i] =
        i < there
            ? reinterpret_cast<cudaGraphNode_t>(reinterpret_cast<uintptr_t>(graph) * 4096 + i + 1)
            : nullptr;
  }
  if (there < wanted) *count = there;
  return cudaSuccess;
}

#if CUDART_VERSION >= 13000
cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t, cudaGraphNode_t*, cudaGraphEdgeData*,
                                         size_t* count) {
#else
cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t, cudaGraphNode_t*, size_t* count) {
#endif
  *count = 0;
  return cudaSuccess;
}

#if CUDART_VERSION >= 12000
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* out, cudaGraph_t graph, unsigned long long) {
  return instantiate(out, graph);
}
#endif

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* out, cudaGraph_t graph,
                                          unsigned long long) {
  return instantiate(out, graph);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete reinterpret_cast<Executable*>(executable);
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  GraphBody& body = *reinterpret_cast<Executable*>(executable)->body;
  note_kernel();
  submit(stream_of(stream));
  std::vector<std::pair<cudaHostFn_t, void*>> functions;
  {
    const std::lock_guard lock(body.mutex);
    functions = body.host_functions;
  }
  for (const auto& [function, argument] : functions) function(argument);
  return cudaSuccess;
}

cudaError_t cudaGraphDebugDotPrint(cudaGraph_t graph, const char* path, unsigned int) {
  std::FILE* file = std::fopen(path, "w");
  if (file == nullptr) return fail(cudaErrorOperatingSystem);
  std::fprintf(file,
               "digraph simulated {\n  label=\"%llu nodes captured on a simulated GPU\";\n}\n",
               static_cast<unsigned long long>(reinterpret_cast<Graph*>(graph)->body->nodes));
  return std::fclose(file) == 0 ? cudaSuccess : fail(cudaErrorOperatingSystem);
}

cudaError_t cudaUserObjectCreate(cudaUserObject_t* out, void* pointer, cudaHostFn_t destroy,
                                 unsigned int references, unsigned int) {
  *out = reinterpret_cast<cudaUserObject_t>(new UserObject{destroy, pointer, references});
  return cudaSuccess;
}

cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned int references) {
  drop(reinterpret_cast<UserObject*>(object), references);
  return cudaSuccess;
}

cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t handle,
                                      unsigned int references, unsigned int flags) {
  auto* object = reinterpret_cast<UserObject*>(handle);
  if ((flags & cudaGraphUserObjectMove) == 0) object->references.fetch_add(references);
  reinterpret_cast<Graph*>(graph)->user_objects.emplace_back(object, references);
  return cudaSuccess;
}
