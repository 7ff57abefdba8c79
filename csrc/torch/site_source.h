// What makes an event: the module that runs in this thread or, in a backward, that made the node.
#pragma once

#include <cstdint>

#include "trace/event.h"

namespace gpumemtrace::hook {

// A capture::SiteSource, while modules are watched.
std::uint32_t site_now(Kind kind, std::uint64_t size_bytes) noexcept;

}  // namespace gpumemtrace::hook
