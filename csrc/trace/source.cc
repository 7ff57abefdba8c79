#include "trace/source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "trace/descriptor.h"

namespace gpumemtrace {

Source::~Source() = default;

// O_NONBLOCK: a named pipe is refused below, not waited for.
FileSource::FileSource(const std::string& path, bool keep_from_children)
    : descriptor_(above_standard_streams(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)),
                  keep_from_children) {
  struct stat status {};
  int error_number = !descriptor_.is_open() || ::fstat(descriptor_.get(), &status) != 0 ? errno : 0;
  if (error_number == 0 && S_ISDIR(status.st_mode)) error_number = EISDIR;
  if (error_number == 0 && !S_ISREG(status.st_mode)) error_number = ESPIPE;
  if (error_number != 0) throw std::system_error(error_number, std::generic_category(), path);
  size_bytes_ = static_cast<std::uint64_t>(status.st_size);
}

FileSource::~FileSource() = default;

void FileSource::refresh() {
  if (const int error = descriptor_.check(); error != 0) {
    throw std::system_error(error, std::generic_category());
  }
  struct stat status {};
  if (::fstat(descriptor_.get(), &status) != 0)
    throw std::system_error(errno, std::generic_category());
  size_bytes_ = static_cast<std::uint64_t>(status.st_size);
}

std::size_t FileSource::read(std::uint64_t offset, void* out, std::size_t size_bytes) const {
  if (offset >= size_bytes_) return 0;
  size_bytes = static_cast<std::size_t>(std::min<std::uint64_t>(size_bytes, size_bytes_ - offset));
  std::size_t done = 0;
  while (done < size_bytes) {
    const ssize_t got = ::pread(descriptor_.get(), static_cast<char*>(out) + done,
                                size_bytes - done, static_cast<off_t>(offset + done));
    if (got == 0) break;
    if (got < 0) {
      if (errno == EINTR) continue;
      throw std::system_error(errno, std::generic_category(), "read");
    }
    done += static_cast<std::size_t>(got);
  }
  return done;
}

SourceWithTail::SourceWithTail(std::unique_ptr<Source> front, std::uint64_t offset,
                               std::vector<std::uint8_t> tail)
    : front_(std::move(front)),
      offset_(std::min(offset, front_->size_bytes())),
      tail_(std::move(tail)) {}

SourceWithTail::~SourceWithTail() = default;

std::size_t SourceWithTail::read(std::uint64_t offset, void* out, std::size_t size_bytes) const {
  std::size_t done = 0;
  if (offset < offset_) {
    const auto wanted =
        static_cast<std::size_t>(std::min<std::uint64_t>(size_bytes, offset_ - offset));
    done = front_->read(offset, out, wanted);
    if (done < wanted) return done;
  }
  const std::uint64_t at = offset + done - offset_;
  if (done == size_bytes || at >= tail_.size()) return done;
  const auto more =
      static_cast<std::size_t>(std::min<std::uint64_t>(size_bytes - done, tail_.size() - at));
  std::memcpy(static_cast<char*>(out) + done, tail_.data() + at, more);
  return done + more;
}

}  // namespace gpumemtrace
