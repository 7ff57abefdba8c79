#include "trace/sink.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace gpumemtrace {
namespace {

// Never 0, 1 or 2: where a program was started with one of them closed, and took its place here,
// whatever it prints would land in the trace.
int above_standard_streams(int descriptor) noexcept {
  if (descriptor < 0 || descriptor > STDERR_FILENO) return descriptor;
  const int moved = ::fcntl(descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int error = errno;
  ::close(descriptor);
  errno = error;
  return moved;
}

}  // namespace

Sink::~Sink() = default;

bool Sink::fail(int error_number) noexcept {
  if (error_number_ == 0) error_number_ = error_number;
  return false;
}

FileSink::FileSink(const std::string& path, bool overwrite)
    : descriptor_(above_standard_streams(::open(
          path.c_str(),
          O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | (overwrite ? O_TRUNC : O_EXCL), 0666))) {
  if (descriptor_ < 0) throw std::system_error(errno, std::generic_category(), path);
}

FileSink::~FileSink() { close(); }

bool FileSink::write(const void* data, std::size_t size_bytes) noexcept {
  if (descriptor_ < 0) return fail(EBADF);
  if (error_number() != 0) return false;
  const auto* bytes = static_cast<const char*>(data);
  while (size_bytes != 0) {
    const ssize_t written = ::write(descriptor_, bytes, size_bytes);
    if (written < 0) {
      if (errno == EINTR) continue;
      return fail(errno);
    }
    if (written == 0) return fail(EIO);
    bytes += written;
    size_bytes -= static_cast<std::size_t>(written);
  }
  return true;
}

bool FileSink::close() noexcept {
  if (descriptor_ < 0) return error_number() == 0;
  const int result = ::close(descriptor_);
  descriptor_ = -1;  // whatever close() said: the number may be somebody else's by now
  if (result != 0 && errno != EINTR) return fail(errno);
  return error_number() == 0;
}

}  // namespace gpumemtrace
