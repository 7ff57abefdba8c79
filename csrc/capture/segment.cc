#include "capture/segment.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>
#include <system_error>

#include "trace/descriptor.h"

namespace gpumemtrace::capture {
namespace {

constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;
constexpr char kPrefix[] = "gpumemtrace-";
constexpr std::size_t kPrefixBytes = sizeof kPrefix - 1;
constexpr std::uint64_t kShareOfFree = 4;  // we take one in so many bytes at most

constinit std::atomic<std::uint64_t> g_own_inode{0};

std::string random_name() {
  unsigned char bytes[16];
  if (::getrandom(bytes, sizeof bytes, 0) != sizeof bytes) return {};
  std::string name = kPrefix;
  for (const unsigned char byte : bytes) {
    char hex[3];
    std::snprintf(hex, sizeof hex, "%02x", unsigned{byte});
    name += hex;
  }
  return name;
}

std::string message_of(int error_number) { return std::generic_category().message(error_number); }

// Of this process, until it ends or closes any descriptor of the file. Unlike flock() a forked child
// does not share it.
bool lock_file(int descriptor) noexcept {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return ::fcntl(descriptor, F_SETLK, &lock) == 0;
}

}  // namespace

bool is_segment_name(const std::string& name) noexcept {
  return name.size() == kSegmentNameBytes && name.compare(0, kPrefixBytes, kPrefix) == 0 &&
         name.find_first_not_of("0123456789abcdef", kPrefixBytes) == std::string::npos;
}

std::string why_too_small(std::uint64_t total_bytes, std::uint64_t free_bytes,
                          std::uint64_t needed_bytes) {
  if (total_bytes == 0 || needed_bytes <= free_bytes / kShareOfFree) return {};
  const auto mib = [](std::uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; };
  return "it has " + mib(free_bytes) + " free; a quarter of that is less than the " +
         mib(needed_bytes) + " needed";
}

std::uint64_t own_segment_inode() noexcept { return g_own_inode.load(std::memory_order_relaxed); }

Segment::Segment(const Options& options)
    : ring_capacity_(options.ring_capacity), bytes_(segment_bytes(options.ring_capacity)) {
  reserve();
  why_private_ = map_shared(options.folder);
  if (!why_private_.empty()) map_private();
  new (memory_ + kProgressOffset) ProgressLog{};
  new (names()) NamesPage[2]{};
  std::memset(static_cast<void*>(stage()), 0, kStageEvents * sizeof(Event));
}

Segment::~Segment() {
  remove_name();
  replace_by_zeros();
}

// Address space such that the ring begins where a huge page can.
void Segment::reserve() {
  void* const wide = ::mmap(nullptr, bytes_ + kHugePageBytes, PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (wide == MAP_FAILED) throw std::bad_alloc();
  auto* const start = static_cast<unsigned char*>(wide);
  const std::size_t before =
      (kHugePageBytes - reinterpret_cast<std::uintptr_t>(start)) % kHugePageBytes;
  bytes_ = (bytes_ + 4095) / 4096 * 4096;
  memory_ = start + before;
  if (before > 0) ::munmap(start, before);
  const std::size_t behind = kHugePageBytes - before;
  if (behind > 0) ::munmap(memory_ + bytes_, behind);
}

std::string Segment::open_file(const std::string& folder) {
  descriptor_ = GuardedDescriptor(
      above_standard_streams(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)), true);
  if (!descriptor_.is_open()) return message_of(errno);
  const int file = descriptor_.get();
  struct statfs system {};
  if (::fstatfs(file, &system) != 0) return message_of(errno);
  if (system.f_type != TMPFS_MAGIC) return "it is not a file system in memory";
  const auto block = static_cast<std::uint64_t>(system.f_bsize);
  const std::size_t needed = bytes_ - (kRingOffset - kNamesEnd);
  if (std::string why = why_too_small(system.f_blocks * block, system.f_bavail * block, needed);
      !why.empty()) {
    return why;
  }
  // Beyond it a write would be a signal.
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes_) {
    return "the limit of a file's size (ulimit -f) is below what is needed";
  }
  // Taken now: memory that is not there would be a SIGBUS in the middle of a push.
  if (::fchmod(file, 0600) != 0 || ::ftruncate(file, static_cast<off_t>(bytes_)) != 0 ||
      ::fallocate(file, 0, 0, kNamesEnd) != 0 ||
      ::fallocate(file, 0, kRingOffset, static_cast<off_t>(bytes_ - kRingOffset)) != 0 ||
      !lock_file(file)) {
    return message_of(errno);
  }
  return {};
}

std::string Segment::map_shared(const std::string& folder) {
  if (folder.empty()) return "no folder was given";
  std::string why = open_file(folder);
  if (why.empty()) {
    name_ = random_name();
    if (name_.empty()) {
      why = "no random name can be had";
    } else if (::mmap(memory_, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                      descriptor_.get(), 0) == MAP_FAILED) {
      why = message_of(errno);
    } else {
      ::madvise(memory_, bytes_, MADV_DONTFORK);
      path_ = folder + '/' + name_;
      return {};
    }
  }
  descriptor_.close();
  name_.clear();
  return folder + ": " + why;
}

void Segment::map_private() {
  if (::mmap(memory_, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
             0) == MAP_FAILED) {
    throw std::bad_alloc();
  }
  // Both are improvements, not needs: an old kernel may refuse them. A child gets zeroed pages, so
  // that the parent's pushes stay free of copy-on-write faults.
  const std::size_t whole = (bytes_ - kRingOffset) / kHugePageBytes * kHugePageBytes;
  if (whole > 0) ::madvise(ring_memory(), whole, MADV_HUGEPAGE);
  ::madvise(memory_, bytes_, MADV_WIPEONFORK);
}

int Segment::give_name(std::uint64_t trace_id, int descriptor, std::uint64_t time_resolution_ns,
                       const ClockPair& begin) noexcept {
  if (!descriptor_.is_open() || is_named_) return 0;
  if (const int error = descriptor_.check(); error != 0) return error;
  SegmentHeader header{};
  std::memcpy(header.magic, kSegmentMagic, sizeof header.magic);
  header.version = kSegmentVersion;
  header.counter_is_used = g_counter_is_usable ? 1 : 0;
  header.total_bytes = bytes_;
  header.ring_capacity = ring_capacity_;
  header.trace_id = trace_id;
  header.time_resolution_ns = time_resolution_ns;
  header.begin_ticks = begin.ticks;
  header.begin_ns = begin.ns;
  header.writer = own_identity();
  char link[64];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  if (::readlink(link, header.file_path, sizeof header.file_path - 1) < 0) return errno;
  std::memcpy(memory_, &header, sizeof header);

  struct stat own {};
  if (::fstat(descriptor_.get(), &own) != 0) return errno;
  g_own_inode.store(own.st_ino, std::memory_order_relaxed);
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor_.get());
  if (::linkat(AT_FDCWD, link, AT_FDCWD, path_.c_str(), AT_SYMLINK_FOLLOW) != 0) return errno;
  is_named_ = true;
  return 0;
}

void Segment::remove_name() noexcept {
  if (!is_named_) return;
  is_named_ = false;
  // First, because a process that has changed its user can't take the name away.
  std::memcpy(memory_, kRetiredMagic, sizeof kRetiredMagic);
  ::unlink(path_.c_str());
  g_own_inode.store(0, std::memory_order_relaxed);
}

void Segment::leave_to_parent() noexcept {
  replace_by_zeros();
  is_named_ = false;
  g_own_inode.store(0, std::memory_order_relaxed);
}

void Segment::replace_by_zeros() noexcept {
  ::mmap(memory_, bytes_, PROT_READ | PROT_WRITE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

}  // namespace gpumemtrace::capture
