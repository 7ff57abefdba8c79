#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>

#include "capture/device_memory.h"
#include "capture/device_sampler.h"

// A stand-in for NVML: the reader asks the process for these names before it loads the library.
namespace {

struct FakeNvml {
  int inits = 0;
  int init_result = 0;
  unsigned long long free_bytes = 60;
  unsigned int other_pid = 1;
  unsigned int own_pid_offset = 0;
  unsigned long long third_bytes = ~0ULL;
} fake;

struct Memory {
  unsigned long long total, free, used;
};
struct Process {
  unsigned int pid;
  unsigned long long used_bytes;
  unsigned int gpu_instance, compute_instance;
};

}  // namespace

extern "C" {
#define FAKE_API __attribute__((visibility("default"), used))
FAKE_API int nvmlInit_v2() {
  ++fake.inits;
  return fake.init_result;
}
FAKE_API int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** handle) {
  *handle = &fake;
  return std::strcmp(id, "0000:41:00.0") == 0 ? 0 : 6;
}
FAKE_API int nvmlDeviceGetMemoryInfo(void* handle, Memory* out) {
  // `used` leaves out what the driver keeps for itself; capacity minus free does not.
  *out = {100, fake.free_bytes, 30};
  return handle == &fake ? 0 : 1;
}
FAKE_API int nvmlDeviceGetComputeRunningProcesses_v3(void*, unsigned int* count, Process* out) {
  if (*count < 3) return 7;
  *count = 3;
  out[0] = {fake.other_pid, 5, 0, 0};
  out[1] = {static_cast<unsigned int>(getpid()) + fake.own_pid_offset, 20, 0, 0};
  out[2] = {fake.other_pid, fake.third_bytes, 0, 0};
  return 0;
}
}

namespace gpumemtrace::capture {
namespace {

DeviceProbe probe_of(const char* bus_id) {
  DeviceProbe probe{};
  probe.device_count = 2;
  std::snprintf(probe.pci_bus_id[1], sizeof probe.pci_bus_id[1], "%s", bus_id);
  probe.mem_info = [](int device, std::uint64_t* used, std::uint64_t* capacity) noexcept {
    *used = 7;
    *capacity = 1000;
    return device == 1;
  };
  return probe;
}

}  // namespace

TEST_CASE("NVML tells the whole device, what this process has of it, and is initialised once") {
  fake = {};
  DeviceMemoryReader reader;
  DeviceMemory memory;
  const DeviceProbe probe = probe_of("0000:41:00.0");
  REQUIRE(reader.read(probe, 1, memory));
  CHECK(memory == DeviceMemory{40, 100, 20, 0, false});  // one process keeps its figure to itself
  fake.free_bytes = 10;
  REQUIRE(reader.read(probe, 1, memory));
  CHECK(memory.used_bytes == 90);
  fake.third_bytes = 3;
  REQUIRE(reader.read(probe, 1, memory));
  CHECK(memory == DeviceMemory{90, 100, 20, 8, true});
  fake.own_pid_offset = 1000;  // a container: the numbers are the host's
  REQUIRE(reader.read(probe, 1, memory));
  CHECK(memory == DeviceMemory{90, 100, 0, 0, false});
  CHECK(fake.inits == 1);
}

TEST_CASE("the callback steps in where NVML does not know the device, or does not start") {
  fake = {};
  DeviceMemory memory;
  DeviceMemoryReader reader;
  REQUIRE(reader.read(probe_of("0000:99:00.0"), 1, memory));
  CHECK(memory == DeviceMemory{7, 1000, 0, 0, false});
  DeviceMemoryReader without_id;
  fake.inits = 0;
  REQUIRE(without_id.read(probe_of(""), 1, memory));
  CHECK(memory == DeviceMemory{7, 1000, 0, 0, false});
  CHECK(fake.inits == 0);
  fake.init_result = 9;
  DeviceMemoryReader no_driver;
  REQUIRE(no_driver.read(probe_of("0000:41:00.0"), 1, memory));
  CHECK(memory == DeviceMemory{7, 1000, 0, 0, false});
}

TEST_CASE("a device that nobody can tell of gives nothing") {
  fake = {};
  DeviceMemoryReader reader;
  DeviceMemory memory;
  DeviceProbe probe = probe_of("");
  CHECK_FALSE(reader.read(probe, 0, memory));  // the callback says no
  CHECK_FALSE(reader.read(probe, 2, memory));  // no such device
  CHECK_FALSE(reader.read(probe, -1, memory));
  CHECK_FALSE(reader.read(probe, kMaxDevices, memory));
  probe.mem_info = nullptr;
  CHECK_FALSE(reader.read(probe, 1, memory));
}

TEST_CASE("a figure that stays the same is told once a second") {
  fake = {};
  constexpr std::uint64_t kMs = 1'000'000;
  set_device_probe(probe_of("0000:41:00.0"));
  DeviceSampler sampler(50 * kMs);
  CHECK(sampler.sample(1).empty());  // no device in use
  sampler.saw(-1);
  sampler.saw(1);
  sampler.saw(kMaxDevices);
  std::size_t told = 0;
  for (std::uint64_t ms = 1; ms <= 2000; ++ms) told += sampler.sample(ms * kMs).size();
  CHECK(told == 2);
  fake.free_bytes = 1;
  const auto events = sampler.sample(2100 * kMs);
  REQUIRE(events.size() == 1);
  CHECK(events[0].kind == Kind::kDeviceUsed);
  CHECK(events[0].device == 1);
  CHECK(events[0].address == 20);
  CHECK(events[0].size == 99);
  CHECK(events[0].stream == 100);
  CHECK(events[0].extra == 0);
  CHECK(events[0].flags == 0);
  fake.free_bytes = 2;
  CHECK(sampler.sample(2120 * kMs).empty());  // not due
  fake.third_bytes = 3;
  const auto with_others = sampler.sample(2160 * kMs);
  REQUIRE(with_others.size() == 1);
  CHECK(with_others[0].extra == 8);
  CHECK(with_others[0].flags == kOthersKnown);
  DeviceSampler never(0);
  never.saw(1);
  CHECK(never.sample(5000 * kMs).empty());
  set_device_probe({});
}

}  // namespace gpumemtrace::capture
