// The session's and the drain's side of what producer.h declares.
#pragma once

#include <cstdint>

#include "capture/producer.h"

namespace gpumemtrace::capture {

void activate_ring(Ring* ring) noexcept;
void deactivate_ring() noexcept;

// In a forked child, which has one thread: records nothing and has skipped nothing. The caller also
// empties the thread registry.
void forget_producers_after_fork() noexcept;

std::uint64_t skipped_events() noexcept;
void add_skipped(std::uint64_t count) noexcept;

// activate_ring, by way of the session opener if there is one.
void open_session(Ring* ring) noexcept;

const DeviceProbe* device_probe() noexcept;  // nullptr = not told
MetadataSource metadata_source() noexcept;   // nullptr = none

}  // namespace gpumemtrace::capture
