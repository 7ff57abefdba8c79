#include "config.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace simgpu {
namespace {

bool complain(const char* variable, const char* text) {
  std::fprintf(stderr, "gpumemtrace simulated GPU: %s=%s makes no sense; no device is offered\n",
               variable, text);
  return false;
}

// Sets `value` when the variable is there; false when what it holds is not a number in range.
template <typename T>
bool read_number(const char* variable, T low, T high, T& value) {
  const char* text = std::getenv(variable);
  if (text == nullptr || *text == '\0') return true;
  char* end = nullptr;
  errno = 0;
  const unsigned long long number = std::strtoull(text, &end, 10);
  if (errno != 0 || *end != '\0' || *text == '-' || number < static_cast<uint64_t>(low) ||
      number > static_cast<uint64_t>(high)) {
    return complain(variable, text);
  }
  value = static_cast<T>(number);
  return true;
}

bool read_compute_capability(Config& config) {
  const char* variable = "GPUMEMTRACE_SIM_COMPUTE_CAPABILITY";
  const char* text = std::getenv(variable);
  if (text == nullptr || *text == '\0') return true;
  int major = 0, minor = 0, used = 0;
  if (std::sscanf(text, "%2d.%1d%n", &major, &minor, &used) != 2 || text[used] != '\0' ||
      major < 1 || minor < 0) {
    return complain(variable, text);
  }
  config.major = major;
  config.minor = minor;
  return true;
}

// CUDA's rule: a list of ordinals, read up to the first entry that names no device.
void read_visible_devices(Config& config) {
  config.visible_count = config.device_count;
  for (int i = 0; i < config.device_count; ++i) config.visible[i] = i;
  const char* text = std::getenv("CUDA_VISIBLE_DEVICES");
  if (text == nullptr) return;
  config.visible_count = 0;
  while (config.visible_count < config.device_count) {
    char* end = nullptr;
    const long ordinal = std::strtol(text, &end, 10);
    if (end == text || ordinal < 0 || ordinal >= config.device_count) return;
    for (int i = 0; i < config.visible_count; ++i) {
      if (config.visible[i] == ordinal) {  // named twice: CUDA shows no device at all
        config.visible_count = 0;
        return;
      }
    }
    config.visible[config.visible_count++] = static_cast<int>(ordinal);
    if (*end != ',') return;
    text = end + 1;
  }
}

Config parse() {
  Config config;
  if (const char* name = std::getenv("GPUMEMTRACE_SIM_NAME"); name != nullptr && *name != '\0') {
    std::snprintf(config.name, sizeof config.name, "%s", name);
  }
  constexpr int kAnyInt = 1 << 30;
  bool good = read_number("GPUMEMTRACE_SIM_DEVICES", 0, kMaxDevices, config.device_count);
  good &= read_number("GPUMEMTRACE_SIM_MEMORY_BYTES", uint64_t{1} << 20, uint64_t{1} << 44,
                      config.memory_bytes);
  good &= read_number("GPUMEMTRACE_SIM_CONTEXT_BYTES", uint64_t{0}, config.memory_bytes,
                      config.context_bytes);
  good &= read_number("GPUMEMTRACE_SIM_OTHER_BYTES", uint64_t{0},
                      config.memory_bytes - config.context_bytes, config.other_bytes);
  good &= read_number("GPUMEMTRACE_SIM_NCCL_BYTES", uint64_t{0}, config.memory_bytes,
                      config.nccl_bytes);
  int hides_processes = 0;
  good &= read_number("GPUMEMTRACE_SIM_HIDE_PROCESSES", 0, 1, hides_processes);
  config.hides_processes = hides_processes != 0;
  good &= read_compute_capability(config);
  good &= read_number("GPUMEMTRACE_SIM_SM_COUNT", 1, kAnyInt, config.sm_count);
  good &= read_number("GPUMEMTRACE_SIM_THREADS_PER_SM", 1, kAnyInt, config.threads_per_sm);
  good &= read_number("GPUMEMTRACE_SIM_BLOCKS_PER_SM", 1, kAnyInt, config.blocks_per_sm);
  good &= read_number("GPUMEMTRACE_SIM_L2_BYTES", 1, kAnyInt, config.l2_bytes);
  good &= read_number("GPUMEMTRACE_SIM_SHARED_PER_BLOCK_OPTIN", 1, kAnyInt,
                      config.shared_per_block_optin);
  good &= read_number("GPUMEMTRACE_SIM_SHARED_PER_SM", 1, kAnyInt, config.shared_per_sm);
  good &= read_number("GPUMEMTRACE_SIM_CLOCK_KHZ", 1, kAnyInt, config.clock_khz);
  good &= read_number("GPUMEMTRACE_SIM_MEMORY_CLOCK_KHZ", 1, kAnyInt, config.memory_clock_khz);
  good &= read_number("GPUMEMTRACE_SIM_MEMORY_BUS_BITS", 1, kAnyInt, config.memory_bus_bits);
  good &= read_number("GPUMEMTRACE_SIM_LAG", uint64_t{0}, uint64_t{1} << 40, config.lag);
  good &= read_number("GPUMEMTRACE_SIM_CONTENT_BYTES", size_t{0}, size_t{1} << 40,
                      config.content_bytes);
  int verbose = 0;
  good &= read_number("GPUMEMTRACE_SIM_VERBOSE", 0, 2, verbose);
  config.verbose = verbose != 0;
  if (!good) config.device_count = 0;
  read_visible_devices(config);
  return config;
}

}  // namespace

const Config& config() noexcept {
  static const Config parsed = parse();
  return parsed;
}

}  // namespace simgpu
