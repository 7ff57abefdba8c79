#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "capture/host_memory.h"

namespace gpumemtrace::capture {
namespace {

namespace fs = std::filesystem;

// A folder that looks like the root of a machine.
class Machine {
 public:
  Machine() : root_(fs::temp_directory_path() / ("gpumemtrace-host-" + std::to_string(getpid()))) {
    fs::remove_all(root_);
  }
  ~Machine() { fs::remove_all(root_); }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  Machine& file(const std::string& path, const std::string& text) {
    const fs::path whole = root_ / path;
    fs::create_directories(whole.parent_path());
    std::ofstream(whole) << text;
    return *this;
  }
  std::string root() const { return root_.string(); }

 private:
  fs::path root_;
};

TEST_CASE("cgroup v2: the process, its group, and the limit") {
  Machine machine;
  machine.file("proc/self/statm", "1000 250 30 1 0 200 0\n");
  machine.file("proc/self/cgroup", "0::/job\n");
  machine.file("sys/fs/cgroup/job/memory.current", "123456\n");
  machine.file("sys/fs/cgroup/job/memory.max", "999999\n");
  HostMemoryReader reader(machine.root());
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  CHECK(reader.read().value() == HostMemory{250 * page, 123456, 999999});
  machine.file("proc/self/statm", "1000 300 30 1 0 200 0\n");
  machine.file("sys/fs/cgroup/job/memory.max", "max\n");
  CHECK(reader.read().value() == HostMemory{300 * page, 123456, 0});
}

TEST_CASE("cgroup v1 among other controllers, its files at the top as in a container") {
  Machine machine;
  machine.file("proc/self/statm", "9 2 1\n");
  machine.file("proc/self/cgroup", "9:cpu,cpuacct:/x\n4:hugetlb,memory:/docker/abc\n0::/\n");
  machine.file("sys/fs/cgroup/memory/memory.usage_in_bytes", "77\n");
  machine.file("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  HostMemoryReader reader(machine.root());
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  CHECK(reader.read().value() == HostMemory{2 * page, 77, 0});
}

TEST_CASE("no cgroup, no /proc, nonsense in them") {
  Machine machine;
  CHECK(!HostMemoryReader(machine.root()).read().has_value());
  machine.file("proc/self/statm", "nonsense");
  CHECK(!HostMemoryReader(machine.root()).read().has_value());
  machine.file("proc/self/statm", "9 2 1\n").file("proc/self/cgroup", "\n:\n0:\nabc\n1::\n");
  CHECK(HostMemoryReader(machine.root()).read().value().cgroup_used_bytes == 0);
}

TEST_CASE("this process") {
  const HostMemory memory = HostMemoryReader().read().value();
  CHECK(memory.resident_bytes > 1'000'000);
  CHECK(memory.resident_bytes < std::uint64_t{1} << 40);
}

TEST_CASE("a sample when due, and told again after a second at the latest") {
  HostSampler sampler(50'000'000);
  const auto events = sampler.sample(1'000'000'000);
  REQUIRE(events.size() == 1);
  CHECK(events[0].kind == Kind::kHostUsed);
  CHECK(events[0].device == -1);
  CHECK(events[0].address > 1'000'000);
  CHECK(sampler.sample(1'049'000'000).empty());
  CHECK(sampler.sample(2'100'000'000).size() == 1);
  CHECK(HostSampler(0).sample(1).empty());
}

}  // namespace
}  // namespace gpumemtrace::capture
