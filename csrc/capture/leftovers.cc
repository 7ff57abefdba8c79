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

// What a process has left that has ended for certain.
struct Leftover {
  SegmentHeader header;
  Progress progress;

  // When the last event was taken from its ring, on CLOCK_MONOTONIC.
  std::uint64_t last_activity_ns() const noexcept {
    return header.begin_ns + static_cast<std::uint64_t>(progress.last_time_ns);
  }
};

// Of a segment that is this user's.
std::optional<Leftover> leftover_at(const std::string& path) {
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
  return Leftover{header, read_progress(file.get())};
}

bool is_where_it_was(const Leftover& left, bool& is_known) {
  struct stat status {};
  const int error = ::stat(left.header.file_path, &status) == 0 ? 0 : errno;
  is_known = error == 0 || error == ENOENT || error == ENOTDIR;
  const FileProgress(&files)[2] = left.progress.files;
  return error == 0 && (is_file(files[0], status) || is_file(files[1], status));
}

bool collect(const std::string& folder, const std::string& name, std::uint64_t now_ns) {
  const std::string path = folder + '/' + name;
  const std::optional<Leftover> left = leftover_at(path);
  if (!left) return false;
  const std::uint64_t last_ns = left->last_activity_ns();
  bool is_known = false;
  if (is_where_it_was(*left, is_known)) {
    recover(left->header.file_path, name, folder);
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
