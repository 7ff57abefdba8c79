#include "capture/process_identity.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "trace/descriptor.h"

namespace gpumemtrace::capture {
namespace {

// Up to `capacity - 1` bytes and a NUL; the number of bytes, 0 when the file can't be read.
std::size_t read_text(const char* path, char* out, std::size_t capacity) noexcept {
  const OwnedDescriptor file(::open(path, O_RDONLY | O_CLOEXEC));
  const ssize_t got = file.is_open() ? ::read(file.get(), out, capacity - 1) : -1;
  const std::size_t length = got > 0 ? static_cast<std::size_t>(got) : 0;
  out[length] = '\0';
  return length;
}

// Field 22 of /proc/<pid>/stat. The second field, the name, may hold spaces and brackets.
std::uint64_t start_ticks_of(std::int32_t pid) noexcept {
  char path[32];
  std::snprintf(path, sizeof path, "/proc/%d/stat", pid);
  char text[1024];
  if (read_text(path, text, sizeof text) == 0) return 0;
  const char* at = std::strrchr(text, ')');
  for (int field = 2; at != nullptr && field < 22; ++field) at = std::strchr(at + 1, ' ');
  return at != nullptr ? std::strtoull(at, nullptr, 10) : 0;
}

std::uint64_t own_pid_namespace() noexcept {
  struct stat status {};
  return ::stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

void read_boot_id(char (&out)[40]) noexcept {
  const std::size_t length = read_text("/proc/sys/kernel/random/boot_id", out, sizeof out);
  if (length > 0 && out[length - 1] == '\n') out[length - 1] = '\0';
}

}  // namespace

ProcessIdentity own_identity() noexcept {
  ProcessIdentity process{};
  process.pid = ::getpid();
  process.start_ticks = start_ticks_of(process.pid);
  process.pid_namespace = own_pid_namespace();
  read_boot_id(process.boot_id);
  return process;
}

Liveness liveness_of(const ProcessIdentity& process) noexcept {
  char boot_id[40] = {};
  read_boot_id(boot_id);
  if (process.boot_id[0] != '\0' && boot_id[0] != '\0' &&
      std::strncmp(process.boot_id, boot_id, sizeof boot_id) != 0) {
    return Liveness::kDead;
  }
  const std::uint64_t pid_namespace = own_pid_namespace();
  if (process.start_ticks == 0 || process.pid <= 0 || process.pid_namespace == 0 ||
      process.pid_namespace != pid_namespace) {
    return Liveness::kUnknown;
  }
  // A zombie has ended, whoever has yet to ask for its status; its start can still be read.
  char path[32];
  std::snprintf(path, sizeof path, "/proc/%d/stat", process.pid);
  char text[1024];
  if (read_text(path, text, sizeof text) == 0) {
    return ::access("/proc/self/stat", R_OK) == 0 ? Liveness::kDead : Liveness::kUnknown;
  }
  const char* const bracket = std::strrchr(text, ')');
  const bool has_ended = bracket != nullptr && bracket[1] == ' ' &&
                         (bracket[2] == 'Z' || bracket[2] == 'X' || bracket[2] == 'x');
  const bool is_same = start_ticks_of(process.pid) == process.start_ticks;
  return is_same && !has_ended ? Liveness::kLives : Liveness::kDead;
}

bool has_mapped(std::int32_t pid, std::uint64_t device, std::uint64_t inode) {
  std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
  if (!maps) return true;
  char numbers[64];
  std::snprintf(numbers, sizeof numbers, " %02x:%02x %llu ", major(device), minor(device),
                static_cast<unsigned long long>(inode));
  bool any = false;
  for (std::string line; std::getline(maps, line);) {
    any = true;
    if ((line + ' ').find(numbers) != std::string::npos) return true;
  }
  return !any;  // a process that lives has something mapped: we were not told
}

}  // namespace gpumemtrace::capture
