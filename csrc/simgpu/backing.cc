#include "backing.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace simgpu {

bool Backing::open(const char* name, uint64_t size) noexcept {
  fd_ = memfd_create(name, MFD_CLOEXEC);
  return fd_ >= 0 && ftruncate(fd_, static_cast<off_t>(size)) == 0;
}

char* Backing::map(uint64_t offset, uint64_t size, void* fixed) const noexcept {
  return map_file(fd_, offset, size, fixed);
}

void Backing::discard(uint64_t offset, uint64_t size) const noexcept {
  fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
            static_cast<off_t>(size));
}

char* map_file(int fd, uint64_t offset, uint64_t size, void* fixed) noexcept {
  const int flags = MAP_SHARED | MAP_NORESERVE | (fixed != nullptr ? MAP_FIXED : 0);
  void* address = mmap(fixed, size, PROT_READ | PROT_WRITE, flags, fd, static_cast<off_t>(offset));
  if (address == MAP_FAILED) return nullptr;
  madvise(address, size, MADV_DONTDUMP);
  return static_cast<char*>(address);
}

char* reserve_addresses(uint64_t size, uint64_t align) noexcept {
  void* raw =
      mmap(nullptr, size + align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  char* start = static_cast<char*>(raw);
  const uint64_t lead = (align - reinterpret_cast<uintptr_t>(raw) % align) % align;
  if (lead > 0) munmap(start, lead);
  if (align > lead) munmap(start + lead + size, align - lead);
  return start + lead;
}

void unmap_keeping_addresses(char* address, uint64_t size) noexcept {
  mmap(address, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

void release_addresses(char* address, uint64_t size) noexcept { munmap(address, size); }

}  // namespace simgpu
