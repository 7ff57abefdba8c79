// Ring -> file: the work of the one thread that reads the ring.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "capture/annotations.h"
#include "capture/clock.h"
#include "capture/device_sampler.h"
#include "capture/flight_recorder.h"
#include "capture/host_memory.h"
#include "capture/name_log.h"
#include "capture/output.h"
#include "capture/ring.h"
#include "capture/segment.h"
#include "trace/event.h"

namespace gpumemtrace::capture {

struct DrainOptions {
  Ring* ring = nullptr;
  // Where ring and stage lie; is told what was done, and given its name when the file is there.
  // nullptr: nowhere in particular.
  Segment* segment = nullptr;
  NameLog* name_log = nullptr;
  OutputOptions output;
  // Keeps the end of the trace in memory instead of a file; its make_sink is the output's.
  std::shared_ptr<FlightRecorder> flight;
  bool lazy = false;  // open the file at the first allocator event; else the caller opens it
  std::uint64_t drain_interval_ns = 5'000'000;
  std::uint64_t flush_interval_ns = 100'000'000;
  std::uint64_t device_sample_interval_ns = 50'000'000;  // 0 = none
};

struct DrainStats {
  std::uint64_t events = 0;   // given to the file: gap records and samples included
  std::uint64_t dropped = 0;  // lost for want of room in the ring
  std::uint64_t gaps = 0;
  Stalls stalls;  // pushes that waited for room (Ring::set_patience)
  std::uint64_t bytes_written = 0;
  std::uint64_t ring_high_water = 0;  // the most that one pass found in the ring
  std::uint64_t cpu_ns = 0;           // of the thread that calls pass()
  std::string error;
  bool file_created = false;
};

// pass() and finish() on one thread at a time; stats() and add_metadata() from anywhere.
//
// Times in the file never decrease: an event whose thread lost its core between stamping and
// reserving is moved up to the one before it, and none is later than the moment it was read.
class Drain {
 public:
  Drain(DrainOptions options, const ClockPair& begin);

  // Makes the file and writes metadata and names known so far; throws std::system_error.
  void open();

  // Moves what is in the ring; writes names, gaps, samples; flushes when due.
  // True: the ring is filling faster than the interval allows, come back at once.
  bool pass() noexcept;

  // After the producers were told to stop: waits a moment for those in the middle of a push, then
  // writes all that is left and the footer (`footer_json` and "totals").
  void finish(const std::string& footer_json) noexcept;

  // A signal ends the process: moves what there is, and has the flight recorder write it.
  void write_before_end(const std::string& trigger) noexcept;

  // A JSON object; goes out with the next pass.
  void add_metadata(const std::string& json) { annotations_.add_metadata(json); }
  DrainStats stats() const;

 private:
  struct Gap {
    std::uint64_t position;  // stands before the event at this position
    Loss loss;
  };
  static constexpr std::size_t kBatch = 256;  // stay in the nearest cache until they are encoded
  static constexpr std::size_t kMostGaps = 256;

  std::uint64_t move_events();
  void note_loss();
  void write_due_gaps();
  std::span<Event> next_batch();  // where it may be made
  void write_batch(std::span<Event> events);
  void append(const Event* events, std::size_t count);
  // Where a limit of disk space asks for it. All that was staged is committed.
  void age() noexcept;
  // After everything that was staged, before its slots are given back to the ring.
  void commit();
  // Once the file is there and all that came before it staged.
  void name_segment();
  void sample_memory(std::uint64_t now_ns);
  void look_at(const Event& event);  // one of those that are looked at
  void watch_phase(std::uint64_t path);
  void flush_if_due(std::uint64_t now_ns);
  void tell_stalls();
  void keep_flight(bool is_wanted);
  std::string footer(const std::string& footer_json);
  void close(const std::string& footer_json, const std::string& trigger);
  std::uint64_t to_file_time(std::uint64_t at_ticks, std::int64_t latest_ns) noexcept;
  void publish_stats();

  DrainOptions options_;
  TraceOutput output_;
  Annotations annotations_;
  DeviceSampler sampler_;
  HostSampler host_sampler_;
  std::unordered_set<std::uint64_t> known_phases_;  // path ids that have been seen
  bool phase_is_new_ = false;                       // the last phase mark was the first of its path
  Calibration clock_;
  std::vector<Event> batch_;     // without a stage
  std::vector<Gap> gaps_;        // not written yet, by position
  std::uint64_t ring_position_;  // events before it are in the stage or in the file
  ClockPair begin_;
  bool segment_is_named_ = false;
  std::int64_t last_time_ns_ = 0;

  std::uint64_t next_flush_ns_ = 0;
  std::uint64_t next_file_check_ns_ = 0;

  std::uint64_t dropped_ = 0;
  std::uint64_t gaps_written_ = 0;
  Stalls stalls_;
  std::uint64_t high_water_ = 0;

  mutable std::mutex mutex_;  // guards stats_
  DrainStats stats_;
};

}  // namespace gpumemtrace::capture
