#include "capture/device_memory.h"

#include <dlfcn.h>
#include <unistd.h>

namespace gpumemtrace::capture {
namespace {

// The part of NVML's interface used here; layouts as in NVIDIA's NVML API reference
// (nvmlMemory_t; nvmlProcessInfo_t as filled by the _v2 and _v3 process queries).
constexpr int kSuccess = 0;
struct MemoryInfo {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};
struct ProcessInfo {
  unsigned int pid;
  unsigned long long used_bytes;
  unsigned int gpu_instance;
  unsigned int compute_instance;
};
constexpr unsigned long long kNotAvailable = ~0ULL;
constexpr unsigned int kMostProcesses = 64;

}  // namespace

struct DeviceMemoryReader::Nvml {
  int (*init)();
  int (*handle_by_bus_id)(const char*, void**);
  int (*memory_info)(void*, MemoryInfo*);
  int (*processes)(void*, unsigned int*, ProcessInfo*);  // nullptr = not known to this driver
};

namespace {

template <typename Function>
bool find(void* library, const char* name, Function& function) noexcept {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace

const DeviceMemoryReader::Nvml* DeviceMemoryReader::nvml() noexcept {
  if (nvml_tried_) return nvml_;
  nvml_tried_ = true;
  static Nvml table;
  // Names that are in the process already come first: there the simulated GPU stands in.
  const bool present = dlsym(RTLD_DEFAULT, "nvmlInit_v2") != nullptr;
  void* library = present ? RTLD_DEFAULT : dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!present && library == nullptr) return nullptr;
  if (!find(library, "nvmlInit_v2", table.init) ||
      !find(library, "nvmlDeviceGetHandleByPciBusId_v2", table.handle_by_bus_id) ||
      !find(library, "nvmlDeviceGetMemoryInfo", table.memory_info)) {
    return nullptr;
  }
  if (!find(library, "nvmlDeviceGetComputeRunningProcesses_v3", table.processes)) {
    find(library, "nvmlDeviceGetComputeRunningProcesses_v2", table.processes);
  }
  if (table.init() != kSuccess) return nullptr;
  nvml_ = &table;
  return nvml_;
}

bool DeviceMemoryReader::read_nvml(const DeviceProbe& probe, int device,
                                   DeviceMemory& out) noexcept {
  const auto index = static_cast<std::size_t>(device);
  if (probe.pci_bus_id[index][0] == '\0') return false;
  const Nvml* library = nvml();
  if (library == nullptr) return false;
  if (!handle_tried_[index]) {
    handle_tried_[index] = true;
    if (library->handle_by_bus_id(probe.pci_bus_id[index], &handles_[index]) != kSuccess) {
      handles_[index] = nullptr;
    }
  }
  if (handles_[index] == nullptr) return false;
  MemoryInfo memory{};
  if (library->memory_info(handles_[index], &memory) != kSuccess) return false;
  out.used_bytes = memory.total - memory.free;
  out.capacity_bytes = memory.total;
  read_processes(*library, handles_[index], out);
  return true;
}

// In a PID namespace NVML gives the host's numbers, or none: then which process is ours is not
// known, and neither are the others.
void DeviceMemoryReader::read_processes(const Nvml& library, void* handle,
                                        DeviceMemory& out) noexcept {
  out.own_bytes = out.other_bytes = 0;
  out.others_known = false;
  if (library.processes == nullptr) return;
  ProcessInfo processes[kMostProcesses];
  unsigned int count = kMostProcesses;
  if (library.processes(handle, &count, processes) != kSuccess) return;
  const auto own_pid = static_cast<unsigned int>(getpid());
  std::uint64_t other_bytes = 0;
  bool all_told = true;
  for (unsigned int i = 0; i < count && i < kMostProcesses; ++i) {
    if (processes[i].used_bytes == kNotAvailable) {
      all_told = false;
    } else if (processes[i].pid == own_pid) {
      out.own_bytes += processes[i].used_bytes;
    } else {
      other_bytes += processes[i].used_bytes;
    }
  }
  out.others_known = all_told && out.own_bytes != 0;
  if (out.others_known) out.other_bytes = other_bytes;
}

bool DeviceMemoryReader::read(const DeviceProbe& probe, int device, DeviceMemory& out) noexcept {
  if (device < 0 || device >= kMaxDevices || device >= probe.device_count) return false;
  if (read_nvml(probe, device, out)) return true;
  out = {};
  return probe.mem_info != nullptr && probe.mem_info(device, &out.used_bytes, &out.capacity_bytes);
}

}  // namespace gpumemtrace::capture
