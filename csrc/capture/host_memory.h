// How much of the host's memory this process and its container use. Linux: /proc and cgroups.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trace/event.h"

namespace gpumemtrace::capture {

struct HostMemory {
  std::uint64_t resident_bytes = 0;      // of this process (RSS)
  std::uint64_t cgroup_used_bytes = 0;   // 0 = unknown
  std::uint64_t cgroup_limit_bytes = 0;  // 0 = none, or unknown

  bool operator==(const HostMemory&) const = default;
};

// One thread at a time. Finds the files at the first read and keeps them open: a read is a few
// system calls of a microsecond or so.
class HostMemoryReader {
 public:
  // Where the kernel's files are; tests give a folder of their own.
  explicit HostMemoryReader(std::string root = "");
  ~HostMemoryReader();
  HostMemoryReader(const HostMemoryReader&) = delete;
  HostMemoryReader& operator=(const HostMemoryReader&) = delete;

  // nullopt: /proc can't be read.
  std::optional<HostMemory> read() noexcept;

 private:
  void open_files();
  void open_cgroup();

  std::string root_;
  bool tried_ = false;
  int statm_ = -1;
  int used_ = -1;
  int limit_ = -1;
};

// The drain thread's: when the host's memory is worth a record.
class HostSampler {
 public:
  explicit HostSampler(std::uint64_t interval_ns) noexcept : interval_ns_(interval_ns) {}

  // When due: one kHostUsed event (time left at 0) if the figures have changed, or were last told a
  // second ago. An interval of 0 means never.
  std::vector<Event> sample(std::uint64_t now_ns);

 private:
  std::uint64_t interval_ns_;
  std::uint64_t next_ns_ = 0;
  std::uint64_t last_ns_ = 0;
  HostMemory last_;
  HostMemoryReader reader_;
};

}  // namespace gpumemtrace::capture
