#include "trace/sink.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <new>
#include <system_error>

#include "trace/descriptor.h"

namespace gpumemtrace {
Sink::~Sink() = default;

bool Sink::fail(int error_number) noexcept {
  if (error_number_ == 0) error_number_ = error_number;
  return false;
}

BufferSink::~BufferSink() = default;

bool BufferSink::write(const void* data, std::size_t size_bytes) noexcept {
  if (error_number() != 0) return false;
  const auto* begin = static_cast<const std::uint8_t*>(data);
  try {
    bytes_.insert(bytes_.end(), begin, begin + size_bytes);
  } catch (const std::bad_alloc&) {
    return fail(ENOMEM);
  }
  return true;
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
