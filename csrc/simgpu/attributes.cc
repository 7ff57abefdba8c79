#include "attributes.h"

#include <algorithm>
#include <iterator>

#include "cuda_api.h"
#include "device.h"
#include "recorded_attributes.h"

namespace simgpu {
namespace {

bool at_least(int major, int minor) {
  const Config& c = config();
  return c.major > major || (c.major == major && c.minor >= minor);
}

// Data-centre chips (x.0) do double precision at half the single rate, the others at 1/64 (1/32 on
// Turing): CUDA C++ Programming Guide, arithmetic throughput table.
int single_to_double_ratio() {
  if (config().minor == 0) return 2;
  return config().major >= 8 ? 64 : 32;
}

// What the compute capability decides.
int by_compute_capability(int attribute, int recorded) {
  switch (attribute) {
    case cudaDevAttrSingleToDoublePrecisionPerfRatio:
      return single_to_double_ratio();
    case cudaDevAttrReservedSharedMemoryPerBlock:
      return at_least(8, 0) ? recorded : 0;
    case cudaDevAttrMaxPersistingL2CacheSize:
      return at_least(8, 0) ? config().l2_bytes / 8 * 5 : 0;
    case cudaDevAttrMaxAccessPolicyWindowSize:
      return at_least(8, 0) ? recorded : 0;
    case CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED:
      return at_least(9, 0) ? 1 : 0;
    default:
      return recorded;
  }
}

}  // namespace

int attribute_of(int attribute, int ordinal) noexcept {
  const Config& c = config();
  const int count = static_cast<int>(std::size(kRecordedAttributes));
  const int recorded = attribute >= 0 && attribute < count ? kRecordedAttributes[attribute] : 0;
  switch (attribute) {
    case cudaDevAttrClockRate:
      return c.clock_khz;
    case cudaDevAttrMemoryClockRate:
      return c.memory_clock_khz;
    case cudaDevAttrGlobalMemoryBusWidth:
      return c.memory_bus_bits;
    case cudaDevAttrMultiProcessorCount:
      return c.sm_count;
    case cudaDevAttrL2CacheSize:
      return c.l2_bytes;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      return c.threads_per_sm;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
      return c.blocks_per_sm;
    case cudaDevAttrComputeCapabilityMajor:
      return c.major;
    case cudaDevAttrComputeCapabilityMinor:
      return c.minor;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      return c.shared_per_block_optin;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      return c.shared_per_sm;
    case cudaDevAttrPciBusId:
      return machine_index(ordinal) + 1;
    case cudaDevAttrPciDeviceId:
    case cudaDevAttrPciDomainId:
      return 0;
    // Not offered: memory for other hosts, and memory that host and device share by page faults.
    case 128:  // CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED
    case cudaDevAttrConcurrentManagedAccess:
      return 0;
    default:
      return by_compute_capability(attribute, recorded);
  }
}

}  // namespace simgpu
