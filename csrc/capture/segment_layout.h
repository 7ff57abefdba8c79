// What a session keeps in shared memory so that it outlives the process: who writes it, who reads
// it, and where it lies.
//
//   0        SegmentHeader     who records, into which file; constant once the segment has a name
//   4 KiB    ProgressLog       how far the drain has come
//   64 KiB   stage             events that wait for their chunk, times as in the file
//   1 MiB    2 x NamesPage     names that may not be in the file yet
//   2 MiB    the ring: its slots, then RingExtras
//
// The writer trusts what it wrote. Whoever reads a segment that is left takes it for bytes that
// anybody may have written: it copies (no mapping that could be cut under it), checks each number
// before it uses it, and believes a slot only when its publication word names its position.
//
// Nothing is doubled and nothing lost, at whatever instruction the process ends:
//   - the drain puts events into the stage, then commits "so many staged, ring read up to there" in
//     one record, then gives their slots back to the ring: until then they are in the ring;
//   - a chunk goes to the file only when all that it holds is committed, and the file itself numbers
//     its events: of the staged ones, numbered from FileProgress::first_sequence on, those that the file
//     has are not taken again.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "capture/process_identity.h"
#include "capture/ring.h"
#include "trace/event.h"

namespace gpumemtrace::capture {

inline constexpr char kSegmentMagic[8] = {'\x89', 'G', 'M', 'T', 's', 'e', 'g', '\n'};
// In its place: the trace ended while its process went on, and nothing here belongs to it.
inline constexpr char kRetiredMagic[8] = {'\x89', 'G', 'M', 'T', 'e', 'n', 'd', '\n'};
// Any change of what is said here, of Slot, RingExtras or Event: one more.
inline constexpr std::uint32_t kSegmentVersion = 3;

struct SegmentHeader {
  char magic[8];
  std::uint32_t version;
  std::uint32_t counter_is_used;  // 0: ticks are ns of CLOCK_MONOTONIC
  std::uint64_t total_bytes;
  std::uint64_t ring_capacity;
  std::uint64_t trace_id;
  std::uint64_t time_resolution_ns;
  std::uint64_t begin_ticks;  // trace time 0, and the same instant
  std::uint64_t begin_ns;     // on CLOCK_MONOTONIC
  ProcessIdentity writer;
  char file_path[3072];  // absolute, NUL at the end
};

// A file that the trace stands in.
struct FileProgress {
  std::uint64_t device;  // as fstat() says
  std::uint64_t inode;
  std::uint64_t first_sequence;  // number that the first staged event has in it
  std::uint64_t bytes;           // where the chunk of the staged events will begin
};

// How far the drain has come. One record, so that it changes as a whole.
struct Progress {
  // The file; and a smaller one that may have taken its place by now, of the same trace: all zeros =
  // there is none. Whoever finds one of the two under the trace's name knows how to go on with it.
  FileProgress files[2];
  std::uint64_t replacements;  // how often another file has taken the place of the one before
  std::uint64_t staged;
  std::uint64_t ring_position;  // events before it are staged or in the file
  std::int64_t last_time_ns;    // of the event given to the stage last
  // Ticks to ns: capture::Calibration's piece. ns_per_tick 0 = no rate was measured yet.
  std::uint64_t anchor_ticks;
  std::int64_t anchor_ns;
  double ns_per_tick;
  // Taken from the ring's counters, not told yet; stands before the event at gap_position.
  std::uint64_t gap_position;
  Loss gap;
};

// One writer. The record in use is never the one being written.
class ProgressLog {
 public:
  void commit(const Progress& progress) noexcept {
    const std::uint64_t number = number_.load(std::memory_order_relaxed) + 1;
    // The commit before is complete before this record changes.
    std::atomic_thread_fence(std::memory_order_release);
    records_[number & 1] = progress;
    number_.store(number, std::memory_order_release);  // -> whoever finds the segment
  }
  // Of a copy that nobody writes to; nullptr = nothing was committed.
  const Progress* latest() const noexcept {
    const std::uint64_t number = number_.load(std::memory_order_relaxed);
    return number != 0 ? &records_[number & 1] : nullptr;
  }

 private:
  std::atomic<std::uint64_t> number_;
  Progress records_[2];
};

// Room for 10,000 short texts: half a second of a mark with a text of its own every 50 us, should the
// drain get no turn for so long.
inline constexpr std::size_t kNamesPageBytes = std::size_t{256} << 10;

// Entries one behind the other, each a NameEntry and its text.
struct NamesPage {
  std::atomic<std::uint32_t> used_bytes;  // release (NameLog) -> whoever finds the segment
  std::uint32_t left_out;                 // entries for which there was no room
  std::uint8_t entries[kNamesPageBytes - 8];
};
static_assert(sizeof(NamesPage) == kNamesPageBytes);

enum class NameEntryType : std::uint8_t { kPhase = 1, kString = 2, kThread = 3 };

struct NameEntry {
  std::uint32_t id;
  std::uint32_t parent;  // of a phase; of a thread the system's number
  std::uint16_t text_bytes;
  NameEntryType type;
  std::uint8_t reserved;
};
static_assert(sizeof(NameEntry) == 12);

inline constexpr std::size_t kStageEvents = 16'384;

inline constexpr std::size_t kProgressOffset = 4096;
inline constexpr std::size_t kStageOffset = std::size_t{64} << 10;
inline constexpr std::size_t kStageEnd = kStageOffset + kStageEvents * sizeof(Event);
inline constexpr std::size_t kNamesOffset = std::size_t{1} << 20;
inline constexpr std::size_t kNamesEnd = kNamesOffset + 2 * kNamesPageBytes;
inline constexpr std::size_t kRingOffset = std::size_t{2} << 20;  // huge pages begin there

static_assert(sizeof(SegmentHeader) <= kProgressOffset);
static_assert(sizeof(ProgressLog) <= kStageOffset - kProgressOffset);
static_assert(kStageEnd <= kNamesOffset && kNamesEnd <= kRingOffset);
static_assert(std::is_trivially_copyable_v<SegmentHeader> &&
              std::is_trivially_copyable_v<Progress>);

constexpr std::size_t segment_bytes(std::size_t ring_capacity) noexcept {
  return kRingOffset + Ring::memory_bytes(ring_capacity);
}

}  // namespace gpumemtrace::capture
