#include "trace/sink.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <new>
#include <string>
#include <system_error>

#include "trace/descriptor.h"

namespace gpumemtrace {
namespace {

// For the reader of a full pipe. Meanwhile the ring fills, and then events are dropped and counted; a
// program that ends waits as long.
constexpr int kMostWaitMs = 5'000;

// In a folder where anybody may make files (/tmp), a file of somebody else's under our name is a
// trap: they could read the trace, or change it.
bool is_planted(const std::string& path, const struct stat& file) {
  if (file.st_uid == ::geteuid()) return false;
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  struct stat status {};
  return ::stat(folder.c_str(), &status) == 0 && (status.st_mode & S_IWOTH) != 0 &&
         file.st_uid != status.st_uid;
}

// The system's own names of open files (`>(...)` of a shell is one) are links by nature.
bool names_open_file(const std::string& path) {
  for (const std::string folder : {"/dev/fd/", "/proc/self/fd/"}) {
    if (path.starts_with(folder)) {
      return path.find_first_not_of("0123456789", folder.size()) == std::string::npos;
    }
  }
  return false;
}

// O_NONBLOCK: a pipe that nobody reads is an error, not a wait, now and later (write_some()).
int open_in_place(const std::string& path) {
  const int follow = names_open_file(path) ? 0 : O_NOFOLLOW;
  const int descriptor =
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | follow | O_NONBLOCK, 0666);
  if (descriptor < 0) return descriptor;
  struct stat status {};
  int error = ::fstat(descriptor, &status) != 0 ? errno : 0;
  if (error == 0 && !S_ISCHR(status.st_mode) && is_planted(path, status)) error = EACCES;
  if (error == 0 && S_ISREG(status.st_mode) && ::ftruncate(descriptor, 0) != 0) error = errno;
  if (error == 0) return descriptor;
  ::close(descriptor);
  errno = error;
  return -1;
}

int open_new(const std::string& path) {
  return ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_EXCL, 0666);
}

// A new file in the place of a regular one: whoever still writes that one, or reads it, keeps it, and
// no two recordings write into one file. Its permissions stay.
int open_over(const std::string& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) && !is_planted(path, status) &&
      ::unlink(path.c_str()) == 0) {
    const int descriptor = open_new(path);
    if (descriptor < 0) return descriptor;
    static_cast<void>(::fchmod(descriptor, status.st_mode & 0777));
    return descriptor;
  }
  return open_in_place(path);
}

// As write(), but of a full pipe the room is waited for; ETIMEDOUT when none comes.
ssize_t write_some(int descriptor, const char* bytes, std::size_t size_bytes) noexcept {
  while (true) {
    const ssize_t written = ::write(descriptor, bytes, size_bytes);
    if (written >= 0) return written;
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return written;
    pollfd full{.fd = descriptor, .events = POLLOUT, .revents = 0};
    const int ready = ::poll(&full, 1, kMostWaitMs);
    if (ready == 0) errno = ETIMEDOUT;
    if (ready == 0 || (ready < 0 && errno != EINTR)) return -1;
  }
}

}  // namespace

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

DescriptorSink::~DescriptorSink() { close(); }

bool DescriptorSink::write(const void* data, std::size_t size_bytes) noexcept {
  if (const int error = descriptor_.check(written_bytes_); error != 0) return fail(error);
  const auto* bytes = static_cast<const char*>(data);
  while (size_bytes != 0 && error_number() == 0) {
    const ssize_t written = write_some(descriptor_.get(), bytes, size_bytes);
    if (written <= 0) return fail(written == 0 ? EIO : errno);
    bytes += written;
    size_bytes -= static_cast<std::size_t>(written);
    written_bytes_ += static_cast<std::uint64_t>(written);
  }
  return error_number() == 0;
}

bool DescriptorSink::close() noexcept {
  const int error = descriptor_.close();
  return error == 0 ? error_number() == 0 : fail(error);
}

FileSink::FileSink(const std::string& path, bool overwrite, bool keep_from_children)
    : DescriptorSink(
          GuardedDescriptor(above_standard_streams(overwrite ? open_over(path) : open_new(path)),
                            keep_from_children)) {
  if (!descriptor_.is_open()) throw std::system_error(errno, std::generic_category(), path);
}

}  // namespace gpumemtrace
