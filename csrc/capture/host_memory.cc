#include "capture/host_memory.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <utility>

namespace gpumemtrace::capture {
namespace {

constexpr std::uint64_t kTellAgainNs = 1'000'000'000;
// cgroup v1 says "no limit" by a number near 2^63.
constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 60;

int open_quietly(const std::string& path) noexcept {
  return open(path.c_str(), O_RDONLY | O_CLOEXEC);
}

// The `index`-th number of a file that begins with numbers. False: it has none ("max"), or there
// is no such file.
bool read_number(int file, int index, std::uint64_t& out) noexcept {
  char text[256];
  const ssize_t count = file < 0 ? -1 : pread(file, text, sizeof text - 1, 0);
  if (count <= 0) return false;
  text[count] = '\0';
  const char* at = text;
  char* end = nullptr;
  for (int i = 0; i <= index; ++i) {
    out = std::strtoull(at, &end, 10);
    if (end == at) return false;
    at = end;
  }
  return true;
}

}  // namespace

HostMemoryReader::HostMemoryReader(std::string root) : root_(std::move(root)) {}

HostMemoryReader::~HostMemoryReader() {
  for (const int file : {statm_, used_, limit_}) {
    if (file >= 0) close(file);
  }
}

std::optional<HostMemory> HostMemoryReader::read() noexcept {
  try {
    if (!tried_) open_files();
  } catch (...) {
    // Without memory for a path: as if there were no such file.
  }
  tried_ = true;
  std::uint64_t pages = 0;
  if (!read_number(statm_, 1, pages)) return std::nullopt;
  HostMemory memory;
  memory.resident_bytes = pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  read_number(used_, 0, memory.cgroup_used_bytes);
  if (!read_number(limit_, 0, memory.cgroup_limit_bytes) || memory.cgroup_limit_bytes >= kNoLimit) {
    memory.cgroup_limit_bytes = 0;
  }
  return memory;
}

void HostMemoryReader::open_files() {
  statm_ = open_quietly(root_ + "/proc/self/statm");
  open_cgroup();
}

// A line of /proc/self/cgroup is "number:controllers:path"; version 2 has the number 0 and no
// controllers. Within a container the path may be the host's, while its files lie at the top.
void HostMemoryReader::open_cgroup() {
  std::ifstream lines(root_ + "/proc/self/cgroup");
  for (std::string line; used_ < 0 && std::getline(lines, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = ',' + line.substr(first + 1, second - first - 1) + ',';
    const std::string path = line.substr(second + 1);
    const bool is_v2 = controllers == ",,";
    if (!is_v2 && controllers.find(",memory,") == std::string::npos) continue;
    const std::string top = root_ + (is_v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory");
    for (const std::string& folder : {top + path, top}) {
      used_ = open_quietly(folder + (is_v2 ? "/memory.current" : "/memory.usage_in_bytes"));
      if (used_ < 0) continue;
      limit_ = open_quietly(folder + (is_v2 ? "/memory.max" : "/memory.limit_in_bytes"));
      break;
    }
  }
}

std::vector<Event> HostSampler::sample(std::uint64_t now_ns) {
  std::vector<Event> events;
  if (interval_ns_ == 0 || now_ns < next_ns_) return events;
  next_ns_ = now_ns + interval_ns_;
  const std::optional<HostMemory> memory = reader_.read();
  if (!memory || (*memory == last_ && now_ns < last_ns_ + kTellAgainNs)) return events;
  last_ = *memory;
  last_ns_ = now_ns;
  Event event{};
  event.kind = Kind::kHostUsed;
  event.device = -1;
  event.address = memory->resident_bytes;
  event.size = memory->cgroup_used_bytes;
  event.stream = memory->cgroup_limit_bytes;
  events.push_back(event);
  return events;
}

}  // namespace gpumemtrace::capture
