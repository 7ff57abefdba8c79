// NVML (libnvidia-ml.so.1): torch calls it through pointers it does not check, for every
// out-of-memory message and every mapping of an expandable segment; monitoring tools read it too.
// A handle is the device's number plus one.

#include <unistd.h>

#include <cctype>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cuda_api.h"
#include "device.h"
#include "identity.h"
#include "report.h"

namespace {

constexpr int kInvalidArgument = 2;  // NVML_ERROR_INVALID_ARGUMENT
constexpr int kNotSupported = 3;
constexpr int kNotFound = 6;
constexpr int kInsufficientSize = 7;

struct Memory {
  unsigned long long total, free, used;
};
struct MemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
struct ProcessV1 {
  unsigned pid;
  unsigned long long used;
};
struct ProcessV2 {  // also version 3 of the call
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance, compute_instance;
};
struct PciInfo {
  char legacy_bus_id[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};

int index_of(void* handle) { return static_cast<int>(reinterpret_cast<intptr_t>(handle)) - 1; }

bool is_machine_device(int index) { return index >= 0 && index < simgpu::config().device_count; }

int give_handle(int index, void** handle) {
  if (!is_machine_device(index)) return kInvalidArgument;
  *handle = reinterpret_cast<void*>(static_cast<intptr_t>(index) + 1);
  return 0;
}

// What this process uses of a device of the machine.
uint64_t own_bytes(int index) {
  for (int ordinal = 0; ordinal < simgpu::config().visible_count; ++ordinal) {
    if (simgpu::machine_index(ordinal) != index) continue;
    simgpu::Device& d = simgpu::device(ordinal);
    const std::lock_guard lock(d.mutex);
    return d.used_bytes == 0 ? 0 : d.used_bytes - simgpu::config().other_bytes;
  }
  return 0;
}

void format_uuid(int index, char* out, size_t size) {
  const auto u = simgpu::uuid_of(index);
  std::snprintf(out, size,
                "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0],
                u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13],
                u[14], u[15]);
}

template <typename Process>
int list_processes(void* handle, unsigned* count, Process* out) {
  constexpr unsigned kOtherPid = 1;
  const unsigned room = *count;
  *count = 0;
  if (simgpu::config().hides_processes) return 0;
  const auto list = [&](unsigned pid, uint64_t used) {
    if (used == 0) return;
    if (*count < room) {
      out[*count] = {};
      out[*count].pid = pid;
      out[*count].used = used;
    }
    ++*count;
  };
  list(static_cast<unsigned>(getpid()), own_bytes(index_of(handle)));
  list(kOtherPid, simgpu::config().other_bytes);
  return *count > room ? kInsufficientSize : 0;
}

}  // namespace

SIMGPU_API int nvmlInit_v2(void) { return 0; }
SIMGPU_API int nvmlInit(void) { return 0; }
SIMGPU_API int nvmlInitWithFlags(unsigned) { return 0; }
SIMGPU_API int nvmlShutdown(void) { return 0; }
SIMGPU_API const char* nvmlErrorString(int status) {
  return status == 0 ? "Success" : status == kNotSupported ? "Not Supported" : "Invalid Argument";
}
SIMGPU_API int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = CUDART_VERSION;
  return 0;
}
SIMGPU_API int nvmlSystemGetCudaDriverVersion(int* version) {
  return nvmlSystemGetCudaDriverVersion_v2(version);
}
SIMGPU_API int nvmlSystemGetDriverVersion(char* out, unsigned size) {
  std::snprintf(out, size, "simulated");
  return 0;
}
SIMGPU_API int nvmlSystemGetNVMLVersion(char* out, unsigned size) {
  std::snprintf(out, size, "simulated");
  return 0;
}

SIMGPU_API int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(simgpu::config().device_count);
  return 0;
}
SIMGPU_API int nvmlDeviceGetCount(unsigned* count) { return nvmlDeviceGetCount_v2(count); }
SIMGPU_API int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** handle) {
  return give_handle(static_cast<int>(index), handle);
}
SIMGPU_API int nvmlDeviceGetHandleByIndex(unsigned index, void** handle) {
  return nvmlDeviceGetHandleByIndex_v2(index, handle);
}
// "0000:BB:00.0", with a domain of four or eight digits.
SIMGPU_API int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** handle) {
  const char* bus = std::strchr(id, ':');
  if (bus == nullptr) return kInvalidArgument;
  const long number = std::strtol(bus + 1, nullptr, 16);
  return give_handle(static_cast<int>(number) - 1, handle) == 0 ? 0 : kNotFound;
}
SIMGPU_API int nvmlDeviceGetHandleByUUID(const char* uuid, void** handle) {
  for (int i = 0; i < simgpu::config().device_count; ++i) {
    char candidate[64];
    format_uuid(i, candidate, sizeof candidate);
    if (std::strcmp(candidate, uuid) == 0) return give_handle(i, handle);
  }
  return kNotFound;
}
SIMGPU_API int nvmlDeviceGetIndex(void* handle, unsigned* index) {
  *index = static_cast<unsigned>(index_of(handle));
  return 0;
}
SIMGPU_API int nvmlDeviceGetName(void*, char* out, unsigned size) {
  std::snprintf(out, size, "%s", simgpu::config().name);
  return 0;
}
SIMGPU_API int nvmlDeviceGetUUID(void* handle, char* out, unsigned size) {
  format_uuid(index_of(handle), out, size);
  return 0;
}
SIMGPU_API int nvmlDeviceGetPciInfo_v3(void* handle, PciInfo* info) {
  *info = {};
  info->bus = static_cast<unsigned>(index_of(handle)) + 1;
  simgpu::pci_bus_id_of(index_of(handle), info->legacy_bus_id, sizeof info->legacy_bus_id);
  std::snprintf(info->bus_id, sizeof info->bus_id, "0000%s", info->legacy_bus_id);
  return 0;
}
SIMGPU_API int nvmlDeviceGetCudaComputeCapability(void*, int* major, int* minor) {
  *major = simgpu::config().major;
  *minor = simgpu::config().minor;
  return 0;
}

SIMGPU_API int nvmlDeviceGetMemoryInfo(void* handle, Memory* memory) {
  if (!is_machine_device(index_of(handle))) return kInvalidArgument;
  memory->total = simgpu::config().memory_bytes;
  memory->used = own_bytes(index_of(handle)) + simgpu::config().other_bytes;
  memory->free = memory->total - memory->used;
  return 0;
}
SIMGPU_API int nvmlDeviceGetMemoryInfo_v2(void* handle, MemoryV2* memory) {
  Memory plain;
  if (const int status = nvmlDeviceGetMemoryInfo(handle, &plain); status != 0) return status;
  memory->total = plain.total;
  memory->reserved = 0;
  memory->free = plain.free;
  memory->used = plain.used;
  return 0;
}
SIMGPU_API int nvmlDeviceGetComputeRunningProcesses(void* handle, unsigned* count, ProcessV1* out) {
  return list_processes(handle, count, out);
}
SIMGPU_API int nvmlDeviceGetComputeRunningProcesses_v2(void* handle, unsigned* count,
                                                       ProcessV2* out) {
  return list_processes(handle, count, out);
}
SIMGPU_API int nvmlDeviceGetComputeRunningProcesses_v3(void* handle, unsigned* count,
                                                       ProcessV2* out) {
  return list_processes(handle, count, out);
}

// No fabric, no links, nothing to measure: torch presets the answers it needs.
SIMGPU_API int nvmlDeviceGetGpuFabricInfoV(void*, void*) { return 0; }
SIMGPU_API int nvmlDeviceGetNvLinkRemoteDeviceType(void*, unsigned, void*) { return kNotSupported; }
SIMGPU_API int nvmlDeviceGetNvLinkRemotePciInfo_v2(void*, unsigned, void*) { return kNotSupported; }
SIMGPU_API int nvmlDeviceGetUtilizationRates(void*, void*) { return kNotSupported; }
SIMGPU_API int nvmlDeviceGetTemperature(void*, int, unsigned*) { return kNotSupported; }
SIMGPU_API int nvmlDeviceGetPowerUsage(void*, unsigned*) { return kNotSupported; }
SIMGPU_API int nvmlDeviceGetClockInfo(void*, int, unsigned*) { return kNotSupported; }
