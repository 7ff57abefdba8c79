// The one recording session of a process.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trace/export.h"

namespace gpumemtrace::capture {

struct SessionOptions {
  std::string path;
  std::string metadata_json = "{}";  // the run record; more may follow by add_metadata
  bool overwrite = false;
  // Keep the last so many ms in memory, and write them when there is reason to (flight_recorder.h);
  // 0: write everything as it comes. `announce`: of files that the program didn't ask for.
  std::uint64_t flight_window_ms = 0;
  std::uint64_t flight_bytes = std::uint64_t{64} << 20;
  bool announce = false;
  // The file is made when the first allocator event arrives; nothing is left behind if none did.
  bool lazy = false;
  std::uint64_t ring_bytes = std::uint64_t{8} << 20;
  std::uint32_t block_timeout_ms = 0;  // a full ring: wait so long for room before an event drops
  // Where the ring lies, so that what a killed process leaves can be recovered. Private memory is
  // taken where this can't be had; the run record says so.
  std::string shared_memory_folder = "/dev/shm";
  std::uint32_t drain_interval_ms = 5;
  std::uint32_t flush_interval_ms = 100;
  std::uint32_t time_resolution_ns = 100;
  std::uint32_t device_sample_interval_ms = 50;  // 0 = no samples
  std::uint64_t max_disk_bytes = 0;              // 0 = no limit; else at least 1 MiB
};

// What has happened so far (after stop: to the session that ended last).
struct SessionStats {
  std::string path;
  std::uint64_t events = 0;      // given to the file
  std::uint64_t dropped = 0;     // lost for want of room in the ring
  std::uint64_t gaps = 0;        // records that tell of these losses
  std::uint64_t stalls = 0;      // times that the program waited for room in the ring,
  std::uint64_t stalled_ns = 0;  // and for how long, all together
  std::uint64_t skipped = 0;     // allocator events between sessions, since the process began
  std::uint64_t bytes_written = 0;
  std::uint64_t ring_capacity = 0;       // events
  std::uint64_t ring_high_water = 0;     // events, the most that the drain found waiting
  std::uint64_t drain_cpu_ns = 0;        // what the drain thread has cost
  std::uint64_t begin_monotonic_ns = 0;  // CLOCK_MONOTONIC at trace time 0,
  std::uint64_t begin_wall_ns = 0;       // and ns since 1970
  std::string error;                     // empty = none
  bool file_created = false;
  std::vector<std::string> flight_files;  // written so far
};

// Throws std::system_error when the file can't be made, std::logic_error when a session is active.
GPUMEMTRACE_API void start_session(const SessionOptions& options);

// Drains, writes the footer, joins. Without an active session, and in a forked child, it only
// returns the last figures. Safe to call at exit.
GPUMEMTRACE_API SessionStats stop_session(const std::string& footer_json);

GPUMEMTRACE_API SessionStats session_stats();
GPUMEMTRACE_API bool session_active() noexcept;

// Writes what a flight recording holds; an empty `path` lets it choose a name. Waits for the drain
// thread. Throws std::system_error, and std::logic_error when no flight recording is going on, or no
// allocator event has come yet.
GPUMEMTRACE_API std::string dump_flight(const std::string& path, bool overwrite);

// More of the run record: a JSON object. Without a session it is ignored.
GPUMEMTRACE_API void add_metadata(const std::string& json);

// Numbers for names, from anywhere but the allocator's path; see names.h.
GPUMEMTRACE_API std::uint32_t define_phase(std::uint32_t parent_id, std::string_view name);
GPUMEMTRACE_API std::uint32_t define_string(std::string_view text);

}  // namespace gpumemtrace::capture
