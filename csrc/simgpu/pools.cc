// Stream-ordered allocation (cudaMallocAsync): one pool a device. How the driver's pool grows is not
// published; this one takes multiples of 32 MiB from the device, fills them lowest address first and
// keeps them until it is trimmed. The report says so.

#include <algorithm>
#include <map>
#include <mutex>

#include "cuda_api.h"
#include "device.h"
#include "fork.h"
#include "regions.h"
#include "report.h"
#include "stream.h"

namespace simgpu {
namespace {

struct Chunk {
  uint64_t size = 0;
  RangeSet free;
};

// Guarded by its device's mutex, whose placement and accounting it shares.
struct Pool {
  std::map<uint64_t, Chunk> chunks;  // by start
  uint64_t reserved = 0, reserved_high = 0;
  uint64_t used = 0, used_high = 0;
  uint64_t release_threshold = 0;
};

Pool& pool_of(int ordinal) {
  static Pool* const pools = new Pool[kMaxDevices];  // leaked, as the devices are
  return pools[ordinal];
}

cudaMemPool_t handle_of(int ordinal) { return reinterpret_cast<cudaMemPool_t>(&pool_of(ordinal)); }

int ordinal_of(cudaMemPool_t handle) {
  return static_cast<int>(reinterpret_cast<Pool*>(handle) - &pool_of(0));
}

// With the device's lock held: a chunk that holds `bytes`, or false.
bool grow(Device& d, Pool& pool, uint64_t bytes) {
  const uint64_t size = round_up(bytes, kSlab);
  if (size > config().memory_bytes - d.used_bytes) return false;
  const Placement::Piece piece = d.placement->allocate(size);
  if (piece.address == 0) return false;
  d.used_bytes += piece.used;
  d.peak_bytes = std::max(d.peak_bytes, d.used_bytes);
  pool.reserved += piece.used;
  pool.reserved_high = std::max(pool.reserved_high, pool.reserved);
  pool.chunks.emplace(piece.address, Chunk{size, RangeSet(piece.address, size)});
  return true;
}

// With the device's lock held: gives free chunks back until at most `keep` bytes are reserved.
void trim(Device& d, Pool& pool, uint64_t keep) {
  for (auto chunk = pool.chunks.begin(); chunk != pool.chunks.end() && pool.reserved > keep;) {
    if (!chunk->second.free.has_range(chunk->first, chunk->second.size)) {
      ++chunk;
      continue;
    }
    d.placement->free(chunk->first);
    d.used_bytes -= chunk->second.size;
    pool.reserved -= chunk->second.size;
    chunk = pool.chunks.erase(chunk);
  }
}

uint64_t take(Pool& pool, uint64_t bytes) {
  for (auto& [start, chunk] : pool.chunks) {
    if (const uint64_t address = chunk.free.take_lowest(bytes); address != 0) return address;
  }
  return 0;
}

cudaError_t allocate(void** out, size_t bytes, int ordinal) {
  *out = nullptr;
  if (const cudaError_t error = activate(ordinal); error != cudaSuccess) return error;
  if (bytes == 0) return cudaSuccess;
  count_approximation("cudaMallocAsync",
                      "the driver's pool is modelled (multiples of 32 MiB, lowest fit): reserved "
                      "memory may differ");
  Device& d = device(ordinal);
  Pool& pool = pool_of(ordinal);
  const uint64_t rounded = round_up(bytes, kSmallest);
  uint64_t address;
  {
    const std::lock_guard lock(d.mutex);
    address = take(pool, rounded);
    if (address == 0 && grow(d, pool, rounded)) address = take(pool, rounded);
    if (address == 0) return fail(cudaErrorMemoryAllocation);
    pool.used += rounded;
    pool.used_high = std::max(pool.used_high, pool.used);
  }
  add_region({address, bytes, ordinal, RegionKind::kPool});
  *out = reinterpret_cast<void*>(address);
  return cudaSuccess;
}

}  // namespace
}  // namespace simgpu

using namespace simgpu;

cudaError_t cudaMallocAsync(void** out, size_t bytes, cudaStream_t stream) {
  submit(stream_of(stream));
  return allocate(out, bytes, stream_of(stream).device);
}

cudaError_t cudaMallocFromPoolAsync(void** out, size_t bytes, cudaMemPool_t pool,
                                    cudaStream_t stream) {
  submit(stream_of(stream));
  return allocate(out, bytes, ordinal_of(pool));
}

cudaError_t cudaFreeAsync(void* address, cudaStream_t stream) {
  submit(stream_of(stream));
  if (address == nullptr) return cudaSuccess;
  const uint64_t base = reinterpret_cast<uintptr_t>(address);
  const auto region = remove_region(base, RegionKind::kPool);
  if (!region) return fail(cudaErrorInvalidValue);
  Device& d = device(region->device);
  Pool& pool = pool_of(region->device);
  const uint64_t rounded = round_up(region->size, kSmallest);
  const std::lock_guard lock(d.mutex);
  containing(pool.chunks, base)->second.free.add(base, rounded);
  pool.used -= rounded;
  trim(d, pool, pool.release_threshold);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int ordinal) {
  if (!is_device(ordinal)) return fail(cudaErrorInvalidDevice);
  *pool = handle_of(ordinal);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int ordinal) {
  return cudaDeviceGetDefaultMemPool(pool, ordinal);
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t handle, cudaMemPoolAttr attribute, void* out) {
  const int ordinal = ordinal_of(handle);
  const Pool& pool = pool_of(ordinal);
  const std::lock_guard lock(device(ordinal).mutex);
  auto* value = static_cast<uint64_t*>(out);
  switch (attribute) {
    case cudaMemPoolAttrReservedMemCurrent:
      *value = pool.reserved;
      break;
    case cudaMemPoolAttrReservedMemHigh:
      *value = pool.reserved_high;
      break;
    case cudaMemPoolAttrUsedMemCurrent:
      *value = pool.used;
      break;
    case cudaMemPoolAttrUsedMemHigh:
      *value = pool.used_high;
      break;
    case cudaMemPoolAttrReleaseThreshold:
      *value = pool.release_threshold;
      break;
    default:
      *static_cast<int*>(out) = 1;
      break;  // the reuse policies: all on, as by default
  }
  return cudaSuccess;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t handle, cudaMemPoolAttr attribute, void* in) {
  const int ordinal = ordinal_of(handle);
  Pool& pool = pool_of(ordinal);
  const std::lock_guard lock(device(ordinal).mutex);
  switch (attribute) {
    case cudaMemPoolAttrReleaseThreshold:
      pool.release_threshold = *static_cast<uint64_t*>(in);
      break;
    case cudaMemPoolAttrReservedMemHigh:
      pool.reserved_high = pool.reserved;
      break;
    case cudaMemPoolAttrUsedMemHigh:
      pool.used_high = pool.used;
      break;
    default:
      break;
  }
  return cudaSuccess;
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t, const cudaMemAccessDesc*, size_t) {
  return cudaSuccess;
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t handle, size_t keep) {
  const int ordinal = ordinal_of(handle);
  Device& d = device(ordinal);
  const std::lock_guard lock(d.mutex);
  trim(d, pool_of(ordinal), keep);
  return cudaSuccess;
}

// Memory of graphs' own allocation nodes: there is none.
cudaError_t cudaDeviceGetGraphMemAttribute(int, cudaGraphMemAttributeType, void* value) {
  *static_cast<uint64_t*>(value) = 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceSetGraphMemAttribute(int, cudaGraphMemAttributeType, void*) {
  return cudaSuccess;
}
