// NCCL: communicators know their size and rank, collectives are work on the stream. Every rank is
// taken to hold what this one holds. Ranks never meet: each process has devices of its own. What has
// no function here is generated as a refusal.

#include <cstdint>
#include <cstring>

#include "config.h"
#include "cuda_api.h"
#include "report.h"
#include "stream.h"

namespace {

struct UniqueId {
  char bytes[128];
};

struct Communicator {
  int size;
  int rank;
  int device;
  void* buffers;
};

constexpr int kUnhandledCudaError = 1;  // ncclUnhandledCudaError

thread_local const char* t_last_error = "";

int make(Communicator** out, int size, int rank) {
  simgpu::count_approximation(
      "NCCL communicator", "its buffers count with GPUMEMTRACE_SIM_NCCL_BYTES; ranks never meet");
  void* buffers = nullptr;
  if (const uint64_t bytes = simgpu::config().nccl_bytes; bytes > 0) {
    if (cudaMalloc(&buffers, bytes) != cudaSuccess) {
      t_last_error = "Cuda failure 2 'out of memory'";
      return kUnhandledCudaError;
    }
  }
  *out = new Communicator{size, rank, simgpu::current_device(), buffers};
  return 0;
}

// ncclDataType_t: int8, uint8, int32, uint32, int64, uint64, half, float, double, bfloat16, fp8 x 2
size_t size_of(int type) {
  constexpr size_t kSizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return type >= 0 && type < 12 ? kSizes[type] : 1;
}

int copy(void* to, const void* from, size_t count, int type, void* stream) {
  return cudaMemcpyAsync(to, from, count * size_of(type), cudaMemcpyDeviceToDevice,
                         static_cast<cudaStream_t>(stream)) == cudaSuccess
             ? 0
             : kUnhandledCudaError;
}

int work(void* stream) {
  simgpu::submit(simgpu::stream_of(stream));
  return 0;
}

}  // namespace

SIMGPU_API int ncclGetVersion(int* version) {
  *version = 22900;
  return 0;
}
SIMGPU_API const char* ncclGetErrorString(int status) {
  if (status == 0) return "no error";
  return status == kUnhandledCudaError ? "unhandled cuda error" : "not simulated";
}
SIMGPU_API const char* ncclGetLastError(void*) { return t_last_error; }
SIMGPU_API int ncclGetUniqueId(UniqueId* id) {
  std::memset(id, 1, sizeof *id);
  return 0;
}
SIMGPU_API int ncclCommGetUniqueId(void*, UniqueId* id) { return ncclGetUniqueId(id); }

SIMGPU_API int ncclCommInitRank(Communicator** out, int size, UniqueId, int rank) {
  return make(out, size, rank);
}
SIMGPU_API int ncclCommInitRankConfig(Communicator** out, int size, UniqueId, int rank, void*) {
  return make(out, size, rank);
}
SIMGPU_API int ncclCommInitRankScalable(Communicator** out, int size, int rank, int, UniqueId*,
                                        void*) {
  return make(out, size, rank);
}
SIMGPU_API int ncclCommInitAll(Communicator** out, int size, const int*) {
  for (int rank = 0; rank < size; ++rank) {
    if (const int status = make(out + rank, size, rank); status != 0) return status;
  }
  return 0;
}
SIMGPU_API int ncclCommSplit(Communicator* from, int, int, Communicator** out, void*) {
  return make(out, from->size, from->rank);
}
SIMGPU_API int ncclCommFinalize(Communicator*) { return 0; }
SIMGPU_API int ncclCommDestroy(Communicator* communicator) {
  if (communicator->buffers != nullptr) (void)cudaFree(communicator->buffers);
  delete communicator;
  return 0;
}
SIMGPU_API int ncclCommAbort(Communicator*) { return 0; }  // others may still hold it
SIMGPU_API int ncclCommGetAsyncError(Communicator*, int* error) {
  *error = 0;
  return 0;
}
SIMGPU_API int ncclCommCount(const Communicator* communicator, int* size) {
  *size = communicator->size;
  return 0;
}
SIMGPU_API int ncclCommUserRank(const Communicator* communicator, int* rank) {
  *rank = communicator->rank;
  return 0;
}
SIMGPU_API int ncclCommCuDevice(const Communicator* communicator, int* device) {
  *device = communicator->device;
  return 0;
}
SIMGPU_API int ncclCommRegister(Communicator*, void* buffer, size_t, void** handle) {
  *handle = buffer;
  return 0;
}
SIMGPU_API int ncclCommDeregister(Communicator*, void*) { return 0; }
SIMGPU_API int ncclMemAlloc(void** out, size_t bytes) {
  return cudaMalloc(out, bytes) == cudaSuccess ? 0 : 1;
}
SIMGPU_API int ncclMemFree(void* address) { return cudaFree(address) == cudaSuccess ? 0 : 1; }
SIMGPU_API int ncclRedOpCreatePreMulSum(int* operation, void*, int, int, Communicator*) {
  *operation = 100;
  return 0;
}
SIMGPU_API int ncclRedOpDestroy(int, Communicator*) { return 0; }
SIMGPU_API int ncclGroupStart(void) { return 0; }
SIMGPU_API int ncclGroupEnd(void) { return 0; }

SIMGPU_API int ncclAllReduce(const void* from, void* to, size_t count, int type, int, Communicator*,
                             void* stream) {
  return copy(to, from, count, type, stream);
}
SIMGPU_API int ncclReduce(const void* from, void* to, size_t count, int type, int, int root,
                          Communicator* communicator, void* stream) {
  return communicator->rank == root ? copy(to, from, count, type, stream) : work(stream);
}
SIMGPU_API int ncclBroadcast(const void* from, void* to, size_t count, int type, int root,
                             Communicator* communicator, void* stream) {
  return communicator->rank == root ? copy(to, from, count, type, stream) : work(stream);
}
SIMGPU_API int ncclBcast(void*, size_t, int, int, Communicator*, void* stream) {
  return work(stream);
}
SIMGPU_API int ncclAllGather(const void* from, void* to, size_t count, int type,
                             Communicator* communicator, void* stream) {
  for (int rank = 0; rank < communicator->size; ++rank) {
    char* part = static_cast<char*>(to) + static_cast<size_t>(rank) * count * size_of(type);
    if (const int status = copy(part, from, count, type, stream); status != 0) return status;
  }
  return 0;
}
SIMGPU_API int ncclReduceScatter(const void* from, void* to, size_t count, int type, int,
                                 Communicator* communicator, void* stream) {
  const size_t offset = static_cast<size_t>(communicator->rank) * count * size_of(type);
  return copy(to, static_cast<const char*>(from) + offset, count, type, stream);
}
SIMGPU_API int ncclSend(const void*, size_t, int, int, Communicator*, void* stream) {
  return work(stream);
}
SIMGPU_API int ncclRecv(void*, size_t, int, int, Communicator*, void* stream) {
  return work(stream);
}
