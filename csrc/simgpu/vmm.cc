// Virtual memory management: physical memory and addresses apart, as expandable segments use them.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <mutex>

#include "contents.h"
#include "cuda_api.h"
#include "device.h"
#include "fork.h"
#include "ranges.h"
#include "regions.h"

namespace simgpu {
namespace {

// One cuMemCreate: a range of its device's physical file.
struct Physical {
  uint64_t size = 0;
  uint64_t offset = 0;
  int device = 0;
  int fd = -1;             // of another process's file, when it was imported
  int64_t references = 1;  // the handle's own, and one for each mapping
  CUmemAllocationProp properties = {};
};

struct Mapping {
  uint64_t size = 0;
  Physical* physical = nullptr;
};

// Physical memory in one sparse file a device. Offsets only grow: a file's size costs nothing.
struct Store {
  Backing backing;
  uint64_t next = 0;
};

struct Book {
  std::mutex mutex;
  std::map<uint64_t, Mapping> mappings;  // by address
  Store stores[kMaxDevices];
};

Book& book() {
  static Book* const the_book = [] {
    auto* made = new Book;  // leaked: calls come in until the process is gone
    hold_across_fork(made->mutex);
    return made;
  }();
  return *the_book;
}

constexpr uint64_t kStoreBytes = uint64_t{1} << 50;

bool open_store(Store& store) {
  return store.backing.fd() >= 0 || store.backing.open("gpumemtrace-physical", kStoreBytes);
}

// Drops one reference; the memory goes back with the last. Returns what to refund, the book's lock
// being held: accounting has its own lock.
uint64_t drop(Book& b, Physical* physical) {
  if (--physical->references > 0) return 0;
  const uint64_t bytes = physical->fd < 0 ? physical->size : 0;
  if (physical->fd >= 0) {
    close(physical->fd);
  } else {
    b.stores[physical->device].backing.discard(physical->offset, physical->size);
  }
  delete physical;
  return bytes;
}

bool map_pages(Book& b, const Physical& physical, uint64_t address, uint64_t bytes,
               uint64_t offset) {
  void* where = reinterpret_cast<void*>(address);
  if (physical.fd < 0) {
    return b.stores[physical.device].backing.map(physical.offset + offset, bytes, where) != nullptr;
  }
  return map_file(physical.fd, physical.offset + offset, bytes, where) != nullptr;
}

// A new description of the file whose position tells the offset: that is how the number reaches a
// process that is given nothing but the descriptor.
int export_descriptor(Book& b, const Physical& physical) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", b.stores[physical.device].backing.fd());
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd >= 0 && lseek(fd, static_cast<off_t>(physical.offset), SEEK_SET) < 0) {
    close(fd);
    return -1;
  }
  return fd;
}

Physical* physical_of(CUmemGenericAllocationHandle handle) {
  return reinterpret_cast<Physical*>(handle);
}

}  // namespace
}  // namespace simgpu

using namespace simgpu;

CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp*,
                                       CUmemAllocationGranularity_flags) {
  *granularity = kPage;
  return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr* out, size_t bytes, size_t alignment, CUdeviceptr,
                             unsigned long long) {
  if (activate(current_device()) != cudaSuccess) return CUDA_ERROR_NOT_INITIALIZED;
  char* address = reserve_addresses(bytes, std::max<uint64_t>(alignment, kPage));
  if (address == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = reinterpret_cast<uintptr_t>(address);
  add_region({*out, bytes, current_device(), RegionKind::kVirtual});
  return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  const auto region = remove_region(address, RegionKind::kVirtual);
  if (!region || region->size != bytes) return CUDA_ERROR_INVALID_VALUE;
  release_addresses(reinterpret_cast<char*>(address), bytes);
  return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* out, size_t bytes,
                     const CUmemAllocationProp* properties, unsigned long long) {
  const int ordinal = properties->location.id;
  if (bytes == 0 || bytes % kPage != 0) return CUDA_ERROR_INVALID_VALUE;
  if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE || !is_device(ordinal)) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  if ((properties->requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC) != 0) {
    return CUDA_ERROR_NOT_PERMITTED;  // no fabric manager here
  }
  if (activate(ordinal) != cudaSuccess) return CUDA_ERROR_NOT_INITIALIZED;
  Book& b = book();
  {
    const std::lock_guard lock(b.mutex);
    if (!open_store(b.stores[ordinal])) return CUDA_ERROR_OPERATING_SYSTEM;
  }
  if (!charge(device(ordinal), bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::lock_guard lock(b.mutex);
  Store& store = b.stores[ordinal];
  auto* physical = new Physical{bytes, store.next, ordinal, -1, 1, *properties};
  store.next += bytes;
  *out = reinterpret_cast<CUmemGenericAllocationHandle>(physical);
  return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  Book& b = book();
  const int ordinal = physical_of(handle)->device;
  uint64_t bytes;
  {
    const std::lock_guard lock(b.mutex);
    bytes = drop(b, physical_of(handle));
  }
  refund(device(ordinal), bytes);
  return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long) {
  Physical* physical = physical_of(handle);
  const auto region = find_region(reinterpret_cast<const void*>(address));
  if (!region || region->kind != RegionKind::kVirtual || bytes % kPage != 0 ||
      address + bytes > region->base + region->size || offset + bytes > physical->size) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Book& b = book();
  {
    const std::lock_guard lock(b.mutex);
    if (!map_pages(b, *physical, address, bytes, offset)) return CUDA_ERROR_MAP_FAILED;
    ++physical->references;
    b.mappings[address] = {bytes, physical};
  }
  set_region_device(address, physical->device);
  if (physical->fd >= 0) {  // what the other process copied there, until a kernel runs here
    note_write(reinterpret_cast<const void*>(address), bytes);
  }
  return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  Book& b = book();
  uint64_t freed[kMaxDevices] = {};
  {
    const std::lock_guard lock(b.mutex);
    unmap_keeping_addresses(reinterpret_cast<char*>(address), bytes);
    auto mapping = b.mappings.lower_bound(address);
    while (mapping != b.mappings.end() && mapping->first < address + bytes) {
      const int ordinal = mapping->second.physical->device;
      freed[ordinal] += drop(b, mapping->second.physical);
      mapping = b.mappings.erase(mapping);
    }
  }
  for (int i = 0; i < config().visible_count; ++i) {
    if (freed[i] > 0) refund(device(i), freed[i]);
  }
  return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) {
  return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* out, void* address) {
  Book& b = book();
  const std::lock_guard lock(b.mutex);
  const auto mapping = containing(b.mappings, reinterpret_cast<uintptr_t>(address));
  if (mapping == b.mappings.end()) return CUDA_ERROR_INVALID_VALUE;
  ++mapping->second.physical->references;
  *out = reinterpret_cast<CUmemGenericAllocationHandle>(mapping->second.physical);
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* out,
                                                CUmemGenericAllocationHandle handle) {
  *out = physical_of(handle)->properties;
  return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void* out, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long) {
  const Physical& physical = *physical_of(handle);
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || physical.fd >= 0) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  Book& b = book();
  const std::lock_guard lock(b.mutex);
  const int fd = export_descriptor(b, physical);
  if (fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *static_cast<int*>(out) = fd;
  return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* out, void* shareable,
                                        CUmemAllocationHandleType type) {
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  const int fd = fcntl(static_cast<int>(reinterpret_cast<intptr_t>(shareable)), F_DUPFD_CLOEXEC, 3);
  const off_t offset = fd < 0 ? -1 : lseek(fd, 0, SEEK_CUR);
  if (offset < 0) {
    if (fd >= 0) close(fd);
    return CUDA_ERROR_INVALID_HANDLE;
  }
  auto* physical = new Physical;
  physical->size =
      kStoreBytes;  // the exporter's own knows its size; the importer's mappings say it
  physical->offset = static_cast<uint64_t>(offset);
  physical->device = current_device();
  physical->fd = fd;
  *out = reinterpret_cast<CUmemGenericAllocationHandle>(physical);
  return CUDA_SUCCESS;
}
