// THE header for whoever records: the allocator hook, the marks set from Python.
//
// Plain data and inline functions only, so that a library built with another C++ string ABI may
// use it. No call here blocks, allocates or makes a syscall, except where it says so.
//
//   if (Ring* ring = active_ring()) {
//     Event event{};
//     event.kind = Kind::kAlloc; ...            // push() adds time and thread
//     if (push(ring, event) && resync_wanted(ring, device)) {
//       clear_resync(ring, device);
//       ... read the totals, push kStats(kResync) for that device
//     }
//   } else {
//     count_skipped();
//   }
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "capture/ring.h"
#include "trace/event.h"
#include "trace/export.h"

namespace gpumemtrace::capture {

// The ring of the session that records now; nullptr = nobody records (also in a forked child).
// release (session start) -> acquire (active_ring). The ring itself is never unmapped: a thread
// that read the pointer just before the session stopped may still push.
extern GPUMEMTRACE_API std::atomic<Ring*> g_active_ring;

inline Ring* active_ring() noexcept { return g_active_ring.load(std::memory_order_acquire); }

// Counts the sessions of this process, so that what one trace was told is not taken as told in the
// next. Moves before the ring becomes active.
extern GPUMEMTRACE_API std::atomic<std::uint64_t> g_session_number;

// Small numbers for threads, 1 = the first one seen; the drain writes the map to OS thread ids and
// names. Takes a lock and makes two syscalls: once a thread, by way of thread_index().
GPUMEMTRACE_API std::uint32_t register_thread() noexcept;

// 0 = not registered yet. initial-exec: one load instead of a call, for 4 bytes of static TLS;
// __thread: no initialiser to ask for at each use.
extern GPUMEMTRACE_API
    __attribute__((tls_model("initial-exec"))) __thread std::uint32_t t_thread_index;

inline std::uint32_t thread_index() noexcept {
  const std::uint32_t index = t_thread_index;
  return index != 0 ? index : register_thread();
}

// What this thread is doing, as a number of the SiteTable (sites.h); 0 = nothing known. Set by who
// watches modules.
extern GPUMEMTRACE_API __attribute__((tls_model("initial-exec"))) __thread std::uint32_t t_site;

// Says what makes an event of this kind and size, in the thread that makes it: t_site, or more than
// that. nullptr: nobody asked for it. release (set) -> acquire (site_of).
using SiteSource = std::uint32_t (*)(Kind kind, std::uint64_t size_bytes) noexcept;
extern GPUMEMTRACE_API std::atomic<SiteSource> g_site_source;

inline std::uint32_t site_of(Kind kind, std::uint64_t size_bytes) noexcept {
  const SiteSource source = g_site_source.load(std::memory_order_acquire);
  return source == nullptr ? 0 : source(kind, size_bytes);
}

// Stamps time and thread and stores the event. False: the ring was full; the event is counted, and
// a kGap will stand in its place.
inline bool push(Ring* ring, Event& event) noexcept {
  event.thread = thread_index();
  return ring->push(event);
}

// True after events of this device were dropped. Ask after a push that succeeded; clear, then push
// a kStats(kResync). If that one is dropped too, the wish comes back by itself.
inline bool resync_wanted(const Ring* ring, std::int16_t device) noexcept {
  return ring->resync_wanted(device);
}
inline void clear_resync(Ring* ring, std::int16_t device) noexcept { ring->clear_resync(device); }

// An allocator event came while no session records. Counts only after a session did record.
GPUMEMTRACE_API void count_skipped() noexcept;

inline constexpr int kMaxDevices = 16;

// Which devices there are; told once CUDA is up. The drain samples the memory of those devices that
// had an allocator event: by NVML where it can be loaded and knows the PCI bus id, else by mem_info
// (called on the drain thread, whole device in bytes; may be nullptr; must make no CUDA context).
struct DeviceProbe {
  int device_count;
  char pci_bus_id[kMaxDevices][32];  // "0000:41:00.0"; empty = do not ask NVML
  bool (*mem_info)(int device, std::uint64_t* used_bytes, std::uint64_t* capacity_bytes) noexcept;
};
GPUMEMTRACE_API void set_device_probe(const DeviceProbe& probe) noexcept;

// Makes a session's ring the active one, by calling `activate` once, and tells it what was there
// before. Called in the thread that begins the session, while no fork can happen.
using SessionOpener = void (*)(Ring* ring, void (*activate)(Ring*) noexcept) noexcept;
GPUMEMTRACE_API void set_session_opener(SessionOpener opener) noexcept;

// Writes a JSON object to `out` and returns its length, 0 for "nothing to say". Polled by the
// drain thread every flush interval and at the end; each change becomes a metadata chunk.
using MetadataSource = std::size_t (*)(char* out, std::size_t capacity) noexcept;
GPUMEMTRACE_API void set_metadata_source(MetadataSource source) noexcept;

}  // namespace gpumemtrace::capture
