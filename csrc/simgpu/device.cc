#include "device.h"

#include <pthread.h>

#include <algorithm>

#include "fork.h"

namespace simgpu {
namespace {

constinit thread_local int this_device = 0;
constinit thread_local cudaError_t this_error = cudaSuccess;

// In a forked child: every call that needs a device goes through activate_slowly, which refuses.
void forget_contexts() {
  for (int i = 0; i < config().visible_count; ++i) device(i).active.store(false);
}

Device* make_devices() {
  auto* devices = new Device[kMaxDevices];  // leaked: calls come in until the process is gone
  pthread_atfork(nullptr, nullptr, forget_contexts);
  for (int i = 0; i < config().visible_count; ++i) hold_across_fork(devices[i].mutex);
  return devices;
}

// As much as is there: a limit on address space (ulimit -v) leaves less room for gaps.
bool open_arena(Device& d) {
  const uint64_t least = round_up(config().memory_bytes, kSlab) + (uint64_t{1} << 30);
  uint64_t bytes = std::max(uint64_t{2} << 40, 16 * least);
  if (!d.backing.open("gpumemtrace-device", bytes)) return false;
  for (; bytes >= least; bytes = round_up(bytes / 2, kSlab)) {
    char* start = reserve_addresses(bytes, kSlab);
    if (start == nullptr) continue;
    d.arena = d.backing.map(0, bytes, start);
    if (d.arena == nullptr) {
      release_addresses(start, bytes);
      continue;
    }
    d.arena_bytes = bytes;
    const uint64_t bottom = reinterpret_cast<uintptr_t>(start);
    d.placement.emplace(bottom, bottom + bytes);
    return true;
  }
  return false;
}

}  // namespace

Device& device(int ordinal) noexcept {
  static Device* const devices = make_devices();
  return devices[ordinal];
}

bool is_device(int ordinal) noexcept { return ordinal >= 0 && ordinal < config().visible_count; }

int machine_index(int ordinal) noexcept { return config().visible[ordinal]; }

int current_device() noexcept { return this_device; }

void set_current_device(int ordinal) noexcept { this_device = ordinal; }

cudaError_t fail(cudaError_t error) noexcept {
  if (error != cudaSuccess) this_error = error;
  return error;
}

cudaError_t take_last_error() noexcept {
  const cudaError_t error = this_error;
  this_error = cudaSuccess;
  return error;
}

cudaError_t last_error() noexcept { return this_error; }

cudaError_t activate_slowly(int ordinal) noexcept {
  if (config().visible_count == 0) return fail(cudaErrorNoDevice);
  if (!is_device(ordinal)) return fail(cudaErrorInvalidDevice);
  if (is_in_bad_fork()) return fail(cudaErrorInitializationError);
  Device& d = device(ordinal);
  const std::lock_guard lock(d.mutex);
  if (d.active.load(std::memory_order_relaxed)) return cudaSuccess;
  if (!open_arena(d)) return fail(cudaErrorMemoryAllocation);
  mark_used();
  d.used_bytes = d.peak_bytes = config().context_bytes + config().other_bytes;
  d.active.store(true, std::memory_order_release);  // pairs with activate
  return cudaSuccess;
}

bool charge(Device& d, uint64_t bytes) noexcept {
  const std::lock_guard lock(d.mutex);
  if (bytes > config().memory_bytes - d.used_bytes) return false;
  d.used_bytes += bytes;
  d.peak_bytes = std::max(d.peak_bytes, d.used_bytes);
  return true;
}

void refund(Device& d, uint64_t bytes) noexcept {
  const std::lock_guard lock(d.mutex);
  d.used_bytes -= bytes;
}

}  // namespace simgpu
