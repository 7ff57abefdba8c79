#include "trace/replacement_sink.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <new>
#include <string_view>
#include <system_error>

#include "trace/descriptor.h"

namespace gpumemtrace {
namespace {

// Where the file lies now: it may have been renamed since it was opened.
std::string path_of(int descriptor) {
  char path[PATH_MAX];
  const ssize_t size = ::readlink(descriptor_path(descriptor).c_str(), path, sizeof path);
  if (size <= 0) throw std::system_error(errno, std::generic_category());
  return {path, static_cast<std::size_t>(size)};
}

std::string temporary_name(const std::string& path) {
  const std::size_t name = path.rfind('/') + 1;
  constexpr std::string_view kSuffix = ".ageing";
  const std::string short_enough = path.substr(name, NAME_MAX - 1 - kSuffix.size());
  return path.substr(0, name) + '.' + short_enough + std::string(kSuffix);
}

}  // namespace

void remove_unfinished_replacement(const std::string& path) {
  const std::string left = temporary_name(path);
  struct stat status {};
  if (::lstat(left.c_str(), &status) != 0) return;
  if (S_ISREG(status.st_mode) && status.st_uid == ::geteuid()) ::unlink(left.c_str());
}

ReplacementSink::ReplacementSink(int descriptor)
    : DescriptorSink(GuardedDescriptor()), original_(descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) throw std::system_error(errno, std::generic_category());
  if (status.st_nlink == 0) throw std::system_error(ENOENT, std::generic_category());
  const std::string path = path_of(descriptor);
  temporary_ = temporary_name(path);
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  int made = above_standard_streams(::open(folder.c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0600));
  if (made < 0) {
    ::unlink(temporary_.c_str());  // of a process that was killed in the middle of this
    made = above_standard_streams(
        ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (made < 0) throw std::system_error(errno, std::generic_category(), temporary_);
    has_name_ = true;
  }
  descriptor_ = GuardedDescriptor(made, true);
  static_cast<void>(::fchmod(made, status.st_mode & 07777));
}

ReplacementSink::~ReplacementSink() {
  close();
  if (has_name_) ::unlink(temporary_.c_str());
}

std::string ReplacementSink::original_path() const {
  std::string path = path_of(original_);
  const OwnedDescriptor named(::open(path.c_str(), O_PATH | O_CLOEXEC | O_NOFOLLOW));
  if (!named.is_open() || !is_same_file(named.get(), original_)) {
    throw std::system_error(ENOENT, std::generic_category());
  }
  return path;
}

bool ReplacementSink::give_name() {
  if (has_name_) return true;
  if (const int error = descriptor_.check(); error != 0) {
    errno = error;
    return false;
  }
  ::unlink(temporary_.c_str());
  const std::string self = descriptor_path(descriptor_.get());
  has_name_ =
      ::linkat(AT_FDCWD, self.c_str(), AT_FDCWD, temporary_.c_str(), AT_SYMLINK_FOLLOW) == 0;
  return has_name_;
}

bool ReplacementSink::publish() noexcept {
  if (error_number() != 0) return false;
  try {
    const std::string path = original_path();
    if (!give_name()) return fail(errno);
    if (::rename(temporary_.c_str(), path.c_str()) != 0) return fail(errno);
    has_name_ = false;
    path_ = path;
    return true;
  } catch (const std::system_error& error) {
    return fail(error.code().value());
  } catch (const std::bad_alloc&) {
    return fail(ENOMEM);
  }
}

}  // namespace gpumemtrace
