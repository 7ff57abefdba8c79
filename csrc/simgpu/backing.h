// What simulated device memory is made of: sparse shared memory (a memfd), so that another process
// can map it (CUDA IPC) and untouched gigabytes cost nothing.
#pragma once

#include <cstdint>

namespace simgpu {

// A sparse file in memory. Lives as long as the process; its pages count once they are written.
class Backing {
 public:
  bool open(const char* name, uint64_t size) noexcept;
  int fd() const noexcept { return fd_; }

  // Maps [offset, offset + size) somewhere, or at `fixed` in place of what was there. Null when the
  // address space does not allow it.
  char* map(uint64_t offset, uint64_t size, void* fixed = nullptr) const noexcept;

  // Gives the pages back; the range reads as zeros afterwards.
  void discard(uint64_t offset, uint64_t size) const noexcept;

 private:
  int fd_ = -1;
};

// Maps a range of any such file, this process's or one that was handed to it.
char* map_file(int fd, uint64_t offset, uint64_t size, void* fixed = nullptr) noexcept;

// Address space alone, any access faults; null when there is none. `align` is a power of two.
char* reserve_addresses(uint64_t size, uint64_t align) noexcept;
// Takes the mapping of a range away but keeps its addresses.
void unmap_keeping_addresses(char* address, uint64_t size) noexcept;
void release_addresses(char* address, uint64_t size) noexcept;

}  // namespace simgpu
