// What reading device memory back yields. Kernels do nothing, so what they would have written is not
// known: it reads as zeros, never as something stale, since a garbage count or flag sends a script
// astray where a zero rarely does. Only what was copied there is read back as it is, and only until
// the next kernel, which may have changed it (or its block may have been given to somebody else).
#pragma once

#include <atomic>
#include <cstddef>

namespace simgpu {

namespace contents {
extern std::atomic<bool> kernel_ran;  // since the last write that is remembered
}

// Hot path: a kernel, BLAS call or graph was submitted.
inline void note_kernel() noexcept {
  if (!contents::kernel_ran.load(std::memory_order_relaxed)) [[unlikely]] {
    contents::kernel_ran.store(true, std::memory_order_relaxed);
  }
}

// Device memory [to, to + bytes) now holds something known.
void note_write(const void* to, size_t bytes) noexcept;
// It holds something that is not known: a copy too large to be kept, or of unknown contents.
void note_loss(const void* to, size_t bytes) noexcept;
// Whether all of [from, from + bytes) is known.
bool is_known(const void* from, size_t bytes) noexcept;

}  // namespace simgpu
