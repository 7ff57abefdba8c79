// What the simulated machine looks like, read once from GPUMEMTRACE_SIM_* (gpumemtrace/capture/
// simulate.py writes them; docs/simulated-gpu.md lists them).
#pragma once

#include <cstddef>
#include <cstdint>

namespace simgpu {

inline constexpr int kMaxDevices = 16;

struct Config {
  char name[256] = "Simulated GPU";
  int device_count = 1;            // devices of the machine, what NVML sees
  int visible_count = 1;           // what CUDA sees, after CUDA_VISIBLE_DEVICES
  int visible[kMaxDevices] = {0};  // CUDA ordinal -> device of the machine
  uint64_t memory_bytes = uint64_t{16} << 30;
  uint64_t context_bytes = 0;    // device memory in use before the first allocation
  uint64_t other_bytes = 0;      // held by another process on each device of the machine
  bool hides_processes = false;  // NVML lists no process, as in a container
  uint64_t nccl_bytes = 0;       // device memory that a communicator takes
  int major = 8, minor = 0;      // compute capability
  int sm_count = 108;
  int threads_per_sm = 2048;
  int blocks_per_sm = 32;
  int l2_bytes = 40 << 20;
  int shared_per_block_optin = 166912;
  int shared_per_sm = 167936;
  int clock_khz = 1410000;
  int memory_clock_khz = 1215000;
  int memory_bus_bits = 5120;
  // How many later submissions to a device it takes until work counts as done; 0 = done at once.
  uint64_t lag = 0;
  // Copies and fills of device memory up to this size are carried out; larger ones leave no trace.
  size_t content_bytes = size_t{1} << 20;
  bool verbose = false;
};

// Parsed at the first call; never changes afterwards. A variable that makes no sense is named on
// stderr and leaves a machine without devices: a wrong machine must not go unnoticed.
const Config& config() noexcept;

}  // namespace simgpu
