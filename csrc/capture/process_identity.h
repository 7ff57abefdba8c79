// Which process a number means: numbers are used again, within one boot and between containers.
#pragma once

#include <cstdint>

namespace gpumemtrace::capture {

// Plain data: stands in shared memory as it is.
struct ProcessIdentity {
  std::int32_t pid;
  std::uint32_t reserved;
  std::uint64_t start_ticks;    // since the machine booted; /proc/<pid>/stat, field 22. 0 = unknown
  std::uint64_t pid_namespace;  // inode of /proc/self/ns/pid. 0 = unknown
  char boot_id[40];             // text and NUL; empty = unknown
};
static_assert(sizeof(ProcessIdentity) == 64);

ProcessIdentity own_identity() noexcept;

enum class Liveness {
  kLives,
  kDead,
  kUnknown,  // of another pid namespace, or nothing can be read of it
};

// Asked of this machine, in this pid namespace.
Liveness liveness_of(const ProcessIdentity& process) noexcept;

// Whether the process has this file mapped, by fstat()'s numbers. Where nothing may be read: true.
bool has_mapped(std::int32_t pid, std::uint64_t device, std::uint64_t inode);

}  // namespace gpumemtrace::capture
