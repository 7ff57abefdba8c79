// What the simulation did not do as a GPU would, by name. Never silently wrong: every call that was
// refused or only approximated is counted here, and the trace's header lists it.
#pragma once

#include "cuda_api.h"

namespace simgpu {

// Counts one call of `name` (a literal, or a string that is never freed), with what became of it in
// `what`. Takes a lock: not for the launch path.
void count_approximation(const char* name, const char* what) noexcept;

// For calls that fail: counts, and names the call on stderr the first time.
void count_refusal(const char* name) noexcept;

// The host read device memory whose contents are not known (contents.h). No lock.
void count_unknown_read() noexcept;

}  // namespace simgpu

// The report as one JSON array of {"name", "calls", "what"}, NUL-terminated; "calls" is null in
// entries that always hold. Writes at most `capacity` bytes and returns the bytes that the whole
// text needs, its NUL included: as with snprintf, a larger answer means that it was cut.
SIMGPU_API size_t gpumemtrace_sim_report(char* out, size_t capacity);

// Grows by one whenever a new name enters the report, not with each further call: a cheap way to
// see that the list is worth writing again.
SIMGPU_API uint64_t gpumemtrace_sim_report_version(void);

// Adds an entry from outside the library (what the Python side had to change), counted once a call.
SIMGPU_API void gpumemtrace_sim_note(const char* name, const char* what);
