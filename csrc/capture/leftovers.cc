#include "capture/leftovers.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <thread>
#include <vector>

#include "capture/clock.h"
#include "capture/quiet_thread.h"
#include "capture/recovery.h"
#include "capture/segment.h"
#include "capture/segment_reader.h"
#include "trace/descriptor.h"

namespace gpumemtrace::capture {
namespace {

constexpr std::uint64_t kDayNs = 86'400ULL * 1'000'000'000;

std::vector<std::string> segments_in(const std::string& folder) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(folder.c_str()), &::closedir);
  if (directory == nullptr) return names;
  while (const dirent* entry = ::readdir(directory.get())) {
    if (is_segment_name(entry->d_name)) names.emplace_back(entry->d_name);
  }
  return names;
}

// Of a segment that is this user's, and whose process has ended for certain.
std::optional<SegmentHeader> header_of_dead(const std::string& path, std::uint64_t& last_ns) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0 || status.st_ino == own_segment_inode()) return {};
  const OwnedDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file.is_open() || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode) ||
      status.st_uid != ::geteuid()) {
    return {};
  }
  const SegmentHeader header =
      read_segment_header(file.get(), static_cast<std::uint64_t>(status.st_size));
  if (liveness_of(header.writer) != Liveness::kDead) return {};
  last_ns = last_activity_ns(file.get(), header);
  return header;
}

bool is_where_it_was(const SegmentHeader& header, bool& is_known) {
  struct stat status {};
  const int error = ::stat(header.file_path, &status) == 0 ? 0 : errno;
  is_known = error == 0 || error == ENOENT || error == ENOTDIR;
  return error == 0 && status.st_dev == header.file_device && status.st_ino == header.file_inode;
}

bool collect(const std::string& folder, const std::string& name, std::uint64_t now_ns) {
  const std::string path = folder + '/' + name;
  std::uint64_t last_ns = 0;
  const std::optional<SegmentHeader> header = header_of_dead(path, last_ns);
  if (!header) return false;
  bool is_known = false;
  if (is_where_it_was(*header, is_known)) {
    recover(header->file_path, name, folder);
  } else if (is_known && now_ns > last_ns && now_ns - last_ns > kDayNs) {
    ::unlink(path.c_str());
  }
  return ::access(path.c_str(), F_OK) != 0;
}

}  // namespace

int collect_leftovers(const std::string& folder, std::uint64_t now_ns) noexcept {
  int gone = 0;
  try {
    for (const std::string& name : segments_in(folder)) {
      try {
        gone += collect(folder, name, now_ns) ? 1 : 0;
      } catch (const std::exception&) {
        // Not readable, or no segment: whoever opens its trace is told why.
      }
    }
  } catch (const std::bad_alloc&) {
    // Next time, then.
  }
  return gone;
}

void start_collecting_leftovers(const std::string& folder) noexcept {
  static std::atomic<bool> has_looked{false};
  if (has_looked.exchange(true, std::memory_order_relaxed)) return;
  try {
    if (segments_in(folder).empty()) return;
    start_quiet_thread([folder] {
      pthread_setname_np(pthread_self(), "gpumemtrace");
      collect_leftovers(folder, monotonic_ns());
    }).detach();
  } catch (const std::exception&) {
    // No thread to be had.
  }
}

}  // namespace gpumemtrace::capture
