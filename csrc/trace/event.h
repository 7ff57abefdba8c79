// The vocabulary: one event, and what its fields mean for each kind.
//
// Mirrored by gpumemtrace/schema.py; tests/test_schema.py keeps the two equal.
// Nothing here knows of Python, torch or CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace gpumemtrace {

// Never renumber: these values are in files. Add at the end.
enum class Kind : std::uint16_t {
  kAlloc = 1,         // memory was handed out (recorded after it succeeded)
  kFree = 2,          // memory goes back (recorded before it does)
  kStats = 3,         // the allocator's own counters, read in the allocating thread
  kDeviceUsed = 4,    // sampled by the drain: what the whole device has in use
  kSegmentAlloc = 5,  // the allocator took a segment from the driver
  kSegmentFree = 6,
  kSegmentMap = 7,
  kSegmentUnmap = 8,
  kAllocFailed = 9,  // out of memory: the request that could not be served
  kRetry = 10,       // the allocator flushed its cache and tried again
  kEmptyCache = 11,
  kPoolBegin = 12,  // allocations of this device go to a private pool from here
  kPoolEnd = 13,
  kPhase = 14,  // the phase of this thread from here on (absolute, so a lost event heals)
  kStep = 15,   // a step begins; the one before it has ended
  kMark = 16,
  kTag = 17,
  kGap = 18,           // events were lost here; says how many
  kRecordStream = 19,  // a block is used by another stream too: its free will be deferred
  kSegmentPool = 20,   // a segment made while a private pool was open: the pool that it belongs to
  kHostUsed = 21,      // sampled by the drain: the host's memory that the process uses
  kAged = 22,          // records were left out here to keep the file small; their lines are kept
};

// One record, in the ring and in decoded form. Fields not named for a kind are 0.
//
//   kind          address        size              stream          extra              flags
//   kAlloc        block          requested bytes   cudaStream_t    allocated_bytes of the device
//                                                                  right after it, 0 = not read:
//                                                                  other events tell the block's size
//   kFree         block          -                 -               -
//   kStats        allocated      requested         active          reserved           StatsCause
//   kDeviceUsed   own process    whole device      capacity        other processes    DeviceUsedFlags
//                 [all in bytes; own 0 = unknown]
//   kSegmentAlloc base           bytes             cudaStream_t    ns in the driver   SegmentFlags
//   kSegmentFree  base           bytes             -               -
//   kSegmentMap   base           bytes             cudaStream_t    ns in the driver   SegmentFlags
//                                                                                     (expandable)
//   kSegmentUnmap base           bytes             -               -                  (expandable)
//   kAllocFailed  -              requested bytes   cudaStream_t    device-free bytes
//   kRetry        -              requested bytes   retries         ns it took
//   kEmptyCache   -              -                 -               ns it took
//   kPoolBegin/End pool id [0]   pool id [1]       -               -
//   kPhase        -              phase path id     -               -                  PhaseFlags
//   kStep         -              number of the step that begins (signed)                    StepFlags
//   kMark         -              string id
//   kTag          address        bytes             category        string id of the name
//   kGap          events lost    bytes requested   frees lost      ns from first to last loss
//                                by lost allocs
//   kRecordStream block          -                 the other stream
//   kSegmentPool  base           pool id [0]       pool id [1]     -                  (0, 0 = none)
//   kHostUsed     process (RSS)  its cgroup        cgroup's limit  -                  (bytes; 0 = unknown, or no limit)
//   kAged         allocs out     bytes requested   frees out       other records   steps told as one
//                                by those allocs                   left out        (1 = none)
//
// Ageing (ageing/summary.h) leaves out blocks that came and went within a step. A kAged stands at the
// end of each phase of such a step, for each device, behind the kStats of the phase's peak and before
// that of its end (StatsCause kAged): so the lines stay true.
//
// A kGap of 0 events: nothing was lost, but blocks may be in use that nobody told of, up to the next
// kStats of a device its lines are uncertain.
//
// A segment is told of right after the alloc that it was taken for, memory that has gone before the
// kStats that no longer holds it. Recorders before gpumemtrace 0.2 gave a kSegmentMap the address of
// the block (the bytes are mapped from there on, wherever nothing was), and told nothing of memory
// that went.
struct Event {
  std::uint64_t time;  // raw clock ticks in the ring; ns since the trace began once drained
  std::uint64_t address;
  std::uint64_t size;
  std::uint64_t stream;
  std::uint64_t extra;
  std::uint32_t thread;  // small index, 1 = first thread seen; the trace maps it to the OS thread
  std::uint32_t site;    // what made it: a number of the `sites` table (alloc, free, alloc failed),
                         // or whose it is (tag); 0 = nothing known, or not asked for
  std::uint32_t flags;
  std::int16_t device;  // -1 = none
  Kind kind;
};

static_assert(sizeof(Event) == 56,
              "56 bytes + the ring's 8-byte publication word = one cache line");
static_assert(std::is_trivially_copyable_v<Event>);

enum class StatsCause : std::uint32_t {
  kMiss = 1,      // no cached block fitted: reserved may have changed
  kRelease = 2,   // empty_cache, a pool released, a limit set
  kResync = 3,    // after a gap, or while blocks are pending on another stream
  kBaseline = 4,  // at the start, and for a device seen for the first time
  kAged = 5,      // not read here: stands for what was left out, as do those of kAgedUnsure, where
  kAgedUnsure = 6,  // events were lost in a gap, and no counters read since
};

// Which requests a segment serves: of up to 1 MiB or larger ones. Neither: not told.
enum SegmentFlags : std::uint32_t {
  kSegmentSmall = 1,
  kSegmentLarge = 2,
};

enum PhaseFlags : std::uint32_t {
  kPhaseEntered = 1,      // a phase was opened here (else: one was closed, this is what is left)
  kPhaseProcessWide = 2,  // holds for every thread, whatever it opened itself
};

enum DeviceUsedFlags : std::uint32_t {
  kOthersKnown = 1,  // own and other processes are NVML's figures for each process
};

enum StepFlags : std::uint32_t {
  kStepSet = 1,     // the number is set here, no step ended (a trace that begins at step 100)
  kStepInside = 2,  // the trace begins inside this step (with kStepSet), so it isn't whole
};

// Of a site: whose call site it names, or why it names none. The stack of an alloc or a failed one;
// a free has none.
enum class StackState : std::uint8_t {
  kOff = 0,       // stacks were not taken at that moment
  kTaken = 1,     // that of the thread which allocated
  kForward = 2,   // backward, in a thread that runs no Python: of the forward operator; may be none
  kTooSmall = 3,  // fewer bytes than asked for
  kNoPython = 4,  // the thread runs no Python
  kTooMany = 5,   // more different ones than are kept
};
inline constexpr std::size_t kStackStates = 6;

enum class Category : std::uint32_t {
  kUnknown = 0,
  kParameter = 1,
  kBuffer = 2,
  kGradient = 3,
  kOptimizerState = 4,
  kActivation = 5,
  kInput = 6,
  kTemporary = 7,
};

}  // namespace gpumemtrace
