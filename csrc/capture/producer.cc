#include "capture/producer.h"

#include "capture/producer_state.h"
#include "capture/threads.h"

namespace gpumemtrace::capture {

constinit std::atomic<Ring*> g_active_ring{nullptr};
__thread std::uint32_t t_thread_index = 0;

namespace {

constinit std::atomic<bool> g_ever_recorded{false};
constinit std::atomic<std::uint64_t> g_skipped{0};
constinit std::atomic<MetadataSource> g_metadata_source{nullptr};
// release (set_device_probe) -> acquire (device_probe). Copies are leaked: one or two a process.
constinit std::atomic<const DeviceProbe*> g_device_probe{nullptr};

}  // namespace

std::uint32_t register_thread() noexcept {
  t_thread_index = thread_registry().add_current();
  return t_thread_index;
}

void count_skipped() noexcept {
  if (g_ever_recorded.load(std::memory_order_relaxed)) {
    g_skipped.fetch_add(1, std::memory_order_relaxed);
  }
}

void set_device_probe(const DeviceProbe& probe) noexcept {
  g_device_probe.store(new (std::nothrow) DeviceProbe(probe), std::memory_order_release);
}

void set_metadata_source(MetadataSource source) noexcept {
  g_metadata_source.store(source, std::memory_order_release);
}

void activate_ring(Ring* ring) noexcept {
  g_ever_recorded.store(true, std::memory_order_relaxed);
  g_active_ring.store(ring, std::memory_order_release);
}

void deactivate_ring() noexcept { g_active_ring.store(nullptr, std::memory_order_release); }

void forget_producers_after_fork() noexcept {
  g_ever_recorded.store(false, std::memory_order_relaxed);
  g_skipped.store(0, std::memory_order_relaxed);
  deactivate_ring();
  t_thread_index = 0;
}

std::uint64_t skipped_events() noexcept { return g_skipped.load(std::memory_order_relaxed); }

void add_skipped(std::uint64_t count) noexcept {
  g_skipped.fetch_add(count, std::memory_order_relaxed);
}

const DeviceProbe* device_probe() noexcept {
  return g_device_probe.load(std::memory_order_acquire);
}

MetadataSource metadata_source() noexcept {
  return g_metadata_source.load(std::memory_order_acquire);
}

}  // namespace gpumemtrace::capture
