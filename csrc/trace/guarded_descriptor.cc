#include "trace/guarded_descriptor.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <utility>

namespace gpumemtrace {
namespace {

// More than one recording has; where it is full, a child keeps what finds no place.
constexpr std::size_t kMostKept = 32;

// descriptor + 1, 0 = free. The identity is there before that number is (release -> acquire), and
// the number goes before the file is closed: a child that was copied at any moment closes nothing that
// it should not, since it looks at the file once more.
struct Kept {
  std::atomic<int> number{0};
  std::atomic<bool> is_taken{false};
  std::atomic<std::uint64_t> device{0};
  std::atomic<std::uint64_t> inode{0};
};
constinit std::array<Kept, kMostKept> g_kept{};

// statx() because fstat() makes NFS write out first what it has. Zeros = no such descriptor; what
// else goes wrong (an old sandbox that knows no statx) says nothing against the file.
bool identify(int descriptor, FileIdentity& identity, std::uint64_t* size_bytes) noexcept {
  constexpr unsigned kAsked = STATX_INO | STATX_TYPE | STATX_SIZE;
  struct statx status {};
  if (::statx(descriptor, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, kAsked, &status) != 0) {
    return errno != EBADF;
  }
  identity.device = (std::uint64_t{status.stx_dev_major} << 32) | status.stx_dev_minor;
  identity.inode = status.stx_ino;
  const bool has_size = (status.stx_mask & STATX_SIZE) != 0 && S_ISREG(status.stx_mode);
  if (size_bytes != nullptr && has_size) *size_bytes = status.stx_size;
  return true;
}

bool is_still(int descriptor, const FileIdentity& expected,
              std::uint64_t* size_bytes = nullptr) noexcept {
  FileIdentity found = expected;
  return identify(descriptor, found, size_bytes) && found == expected;
}

int keep(int descriptor, const FileIdentity& identity) noexcept {
  for (std::size_t i = 0; i < kMostKept; ++i) {
    if (g_kept[i].is_taken.exchange(true, std::memory_order_acquire)) continue;
    g_kept[i].device.store(identity.device, std::memory_order_relaxed);
    g_kept[i].inode.store(identity.inode, std::memory_order_relaxed);
    g_kept[i].number.store(descriptor + 1, std::memory_order_release);
    return static_cast<int>(i);
  }
  return -1;
}

void forget(int entry) noexcept {
  if (entry < 0) return;
  Kept& kept = g_kept[static_cast<std::size_t>(entry)];
  kept.number.store(0, std::memory_order_relaxed);
  kept.is_taken.store(false, std::memory_order_release);
}

}  // namespace

GuardedDescriptor::GuardedDescriptor(int descriptor, bool keep_from_children) noexcept
    : descriptor_(descriptor) {
  if (descriptor_ < 0) return;
  const int callers_errno = errno;
  identify(descriptor_, identity_, nullptr);
  errno = callers_errno;
  if (keep_from_children && identity_ != FileIdentity{}) entry_ = keep(descriptor_, identity_);
}

GuardedDescriptor::GuardedDescriptor(GuardedDescriptor&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      entry_(std::exchange(other.entry_, -1)),
      identity_(other.identity_) {}

GuardedDescriptor& GuardedDescriptor::operator=(GuardedDescriptor&& other) noexcept {
  if (this == &other) return *this;
  close();
  descriptor_ = std::exchange(other.descriptor_, -1);
  entry_ = std::exchange(other.entry_, -1);
  identity_ = other.identity_;
  return *this;
}

int GuardedDescriptor::check(std::uint64_t least_bytes) const noexcept {
  if (descriptor_ < 0) return EBADF;
  if (identity_ == FileIdentity{}) return 0;
  std::uint64_t size_bytes = UINT64_MAX;  // of what has none
  if (!is_still(descriptor_, identity_, &size_bytes)) return EBADF;
  return size_bytes < least_bytes ? kCutShort : 0;
}

int GuardedDescriptor::close() noexcept {
  if (descriptor_ < 0) return 0;
  const int callers_errno = errno;
  int error = check();
  const int descriptor = std::exchange(descriptor_, -1);
  forget(std::exchange(entry_, -1));
  // Whatever close() says: the number may be somebody else's then.
  if (error == 0 && ::close(descriptor) != 0 && errno != EINTR) error = errno;
  errno = callers_errno;
  return error;
}

void close_guarded_in_child() noexcept {
  for (Kept& kept : g_kept) {
    const int descriptor = kept.number.exchange(0, std::memory_order_acquire) - 1;
    kept.is_taken.store(false, std::memory_order_relaxed);
    if (descriptor < 0) continue;
    const FileIdentity identity{kept.device.load(std::memory_order_relaxed),
                                kept.inode.load(std::memory_order_relaxed)};
    if (is_still(descriptor, identity)) ::close(descriptor);
  }
}

}  // namespace gpumemtrace
