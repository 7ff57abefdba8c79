// Memory and events shared with other processes of this host (torch.multiprocessing). Device memory
// is a file in memory, so the other side maps the same pages.

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "contents.h"
#include "cuda_api.h"
#include "device.h"
#include "event.h"
#include "regions.h"
#include "report.h"

namespace simgpu {
namespace {

constexpr uint64_t kMagic = 0x53494d4750554950;  // "SIMGPUIP"

struct MemoryHandle {
  uint64_t magic;
  int32_t process;
  int32_t fd;  // in that process
  uint64_t offset;
  uint64_t size;
};
static_assert(sizeof(MemoryHandle) <= sizeof(cudaIpcMemHandle_t));

}  // namespace
}  // namespace simgpu

using namespace simgpu;

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* out, void* address) {
  const auto region = find_region(address);
  if (!region || region->kind != RegionKind::kDevice) return fail(cudaErrorInvalidValue);
  if (region->size <= kSmallLimit) {  // shares its page, which others must not see
    count_refusal("cudaIpcGetMemHandle (of an allocation up to 1 MiB)");
    return fail(cudaErrorNotSupported);
  }
  const Device& d = device(region->device);
  const MemoryHandle handle{kMagic, getpid(), d.backing.fd(),
                            region->base - reinterpret_cast<uintptr_t>(d.arena), region->size};
  std::memset(out, 0, sizeof *out);
  std::memcpy(out, &handle, sizeof handle);
  return cudaSuccess;
}

// The memory is counted where it was allocated, not here: each process has devices of its own.
cudaError_t cudaIpcOpenMemHandle(void** out, cudaIpcMemHandle_t raw, unsigned int) {
  *out = nullptr;
  if (const cudaError_t error = activate(current_device()); error != cudaSuccess) return error;
  MemoryHandle handle;
  std::memcpy(&handle, &raw, sizeof handle);
  if (handle.magic != kMagic) return fail(cudaErrorInvalidValue);
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/fd/%d", handle.process, handle.fd);
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return fail(cudaErrorInvalidResourceHandle);
  const uint64_t size = round_up(handle.size, kPage);
  char* start = reserve_addresses(size, kPage);
  if (start != nullptr) start = map_file(fd, handle.offset, size, start);
  close(fd);
  if (start == nullptr) return fail(cudaErrorMapBufferObjectFailed);
  add_region(
      {reinterpret_cast<uintptr_t>(start), handle.size, current_device(), RegionKind::kImported});
  note_write(start, handle.size);  // what the other process copied there, until a kernel runs here
  *out = start;
  return cudaSuccess;
}

cudaError_t cudaIpcCloseMemHandle(void* address) {
  const auto region = remove_region(reinterpret_cast<uintptr_t>(address), RegionKind::kImported);
  if (!region) return fail(cudaErrorInvalidValue);
  release_addresses(static_cast<char*>(address), round_up(region->size, kPage));
  return cudaSuccess;
}

// Another process's work is taken to be done when its event arrives here.
cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t* out, cudaEvent_t) {
  std::memset(out, 0, sizeof *out);
  return cudaSuccess;
}

cudaError_t cudaIpcOpenEventHandle(cudaEvent_t* out, cudaIpcEventHandle_t) {
  return cudaEventCreateWithFlags(out, cudaEventDisableTiming | cudaEventInterprocess);
}
