// File descriptors that stay out of the program's way.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace gpumemtrace {

// The same file, never as 0, 1 or 2: where a program was started with one of them closed, and took
// its place here, whatever it prints would land in the file. Negative (errno set) stays so.
inline int above_standard_streams(int descriptor) noexcept {
  if (descriptor < 0 || descriptor > STDERR_FILENO) return descriptor;
  const int moved = ::fcntl(descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int error = errno;
  ::close(descriptor);
  errno = error;
  return moved;
}

// Closes its descriptor at the end of a scope.
class OwnedDescriptor {
 public:
  explicit OwnedDescriptor(int descriptor) noexcept : descriptor_(descriptor) {}
  ~OwnedDescriptor() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  OwnedDescriptor(const OwnedDescriptor&) = delete;
  OwnedDescriptor& operator=(const OwnedDescriptor&) = delete;

  int get() const noexcept { return descriptor_; }
  bool is_open() const noexcept { return descriptor_ >= 0; }

 private:
  int descriptor_;
};

}  // namespace gpumemtrace
