// Puts what a killed process had recorded and not written behind the trace that it was writing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "capture/segment.h"
#include "trace/export.h"

namespace gpumemtrace::capture {

enum class RecoveryOutcome {
  kNothing,      // no such segment: another reader was first, or another machine has it
  kWriterLives,  // the trace is being written
  kLeftAlone,    // `why` says what speaks against touching it
  kInFile,       // the file is complete now, and closed; the segment is gone
  kInMemory,     // `why` says what speaks against writing to the file; the segment stays
};

struct Recovery {
  RecoveryOutcome outcome = RecoveryOutcome::kNothing;
  std::string why;
  std::uint64_t events = 0;  // recovered
  // In memory: what would stand in the file from `offset` on.
  std::uint64_t offset = 0;
  std::vector<std::uint8_t> tail;
};

// `path`: a trace that was not closed; `segment_name`: what its run record names. Any process, any
// number at a time: a lock lets one do it. Throws std::system_error when the trace can't be read.
GPUMEMTRACE_API Recovery recover(const std::string& path, const std::string& segment_name,
                                 const std::string& folder = kSharedMemoryFolder);

// In a forked child: a thread that is not in it may have been recovering.
void forget_recovery_after_fork() noexcept;

}  // namespace gpumemtrace::capture
