// A descriptor of ours in a program that may close what it does not know (os.closerange, what
// daemons do when they begin). The number may be a file of the program's own by then: it must be
// neither written nor closed.
#pragma once

#include <cerrno>
#include <cstdint>

#include "trace/export.h"

namespace gpumemtrace {

// Which file it is, wherever it lies; all zeros = could not be told.
struct FileIdentity {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  bool operator==(const FileIdentity&) const = default;
};

// Owns its descriptor. One thread at a time, but for close_guarded_in_child().
class GPUMEMTRACE_API GuardedDescriptor {
 public:
  GuardedDescriptor() = default;
  // Of a file that was just opened; negative = none. `keep_from_children`: a fork's child closes it,
  // see close_guarded_in_child().
  explicit GuardedDescriptor(int descriptor, bool keep_from_children = false) noexcept;
  ~GuardedDescriptor() { close(); }
  GuardedDescriptor(GuardedDescriptor&& other) noexcept;
  GuardedDescriptor& operator=(GuardedDescriptor&& other) noexcept;

  int get() const noexcept { return descriptor_; }
  bool is_open() const noexcept { return descriptor_ >= 0; }
  // What somebody has done when the file is shorter than what was written into it.
  static constexpr int kCutShort = ENODATA;
  // 0 = the number stands for the file yet; else EBADF: somebody closed it. kCutShort: it is a regular
  // file that has fewer than `least_bytes`: going on would leave a hole in it.
  int check(std::uint64_t least_bytes = 0) const noexcept;
  // Returns errno, 0 = done. Somebody else's file stays open.
  int close() noexcept;

 private:
  int descriptor_ = -1;
  int entry_ = -1;  // in the list of what children close
  FileIdentity identity_;
};

// For pthread_atfork: closes what is kept from children. A child that lives on would keep the room of
// files that were replaced or deleted since.
GPUMEMTRACE_API void close_guarded_in_child() noexcept;

}  // namespace gpumemtrace
