#include "capture/producer.h"

#include <new>

#include "capture/producer_state.h"
#include "capture/threads.h"

namespace gpumemtrace::capture {

constinit std::atomic<Ring*> g_active_ring{nullptr};
constinit std::atomic<std::uint64_t> g_session_number{0};
__thread std::uint32_t t_thread_index = 0;
__thread std::uint32_t t_site = 0;
constinit std::atomic<SiteSource> g_site_source{nullptr};

namespace {

constinit std::atomic<bool> g_ever_recorded{false};
constinit std::atomic<std::uint64_t> g_skipped{0};
constinit std::atomic<MetadataSource> g_metadata_source{nullptr};
constinit std::atomic<SessionOpener> g_session_opener{nullptr};
// Copies are kept for ever, since the drain may be reading one: there are one or two a process.
struct KeptProbe {
  DeviceProbe probe;
  const KeptProbe* before;
};
// release (set_device_probe) -> acquire (device_probe).
constinit std::atomic<const KeptProbe*> g_device_probe{nullptr};

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
  auto* kept = new (std::nothrow) KeptProbe{probe, nullptr};
  if (kept == nullptr) return;
  kept->before = g_device_probe.exchange(kept, std::memory_order_acq_rel);
}

void set_metadata_source(MetadataSource source) noexcept {
  g_metadata_source.store(source, std::memory_order_release);
}

void set_session_opener(SessionOpener opener) noexcept {
  g_session_opener.store(opener, std::memory_order_release);
}

void open_session(Ring* ring) noexcept {
  if (const SessionOpener opener = g_session_opener.load(std::memory_order_acquire)) {
    opener(ring, &activate_ring);
  } else {
    activate_ring(ring);
  }
}

void activate_ring(Ring* ring) noexcept {
  g_ever_recorded.store(true, std::memory_order_relaxed);
  g_session_number.fetch_add(1, std::memory_order_relaxed);
  g_active_ring.store(ring, std::memory_order_release);
}

void deactivate_ring() noexcept { g_active_ring.store(nullptr, std::memory_order_release); }

void forget_producers_after_fork() noexcept {
  g_ever_recorded.store(false, std::memory_order_relaxed);
  g_skipped.store(0, std::memory_order_relaxed);
  deactivate_ring();
  g_site_source.store(nullptr, std::memory_order_relaxed);
  t_thread_index = 0;
  t_site = 0;
}

std::uint64_t skipped_events() noexcept { return g_skipped.load(std::memory_order_relaxed); }

void add_skipped(std::uint64_t count) noexcept {
  g_skipped.fetch_add(count, std::memory_order_relaxed);
}

const DeviceProbe* device_probe() noexcept {
  const KeptProbe* kept = g_device_probe.load(std::memory_order_acquire);
  return kept != nullptr ? &kept->probe : nullptr;
}

MetadataSource metadata_source() noexcept {
  return g_metadata_source.load(std::memory_order_acquire);
}

}  // namespace gpumemtrace::capture
