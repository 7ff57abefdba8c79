// What an aged unit is told as.
//
// Left out are the blocks that came and went within it, and what is said of them. What stays are the
// blocks that lived on or came from before, with their step and phase, and every rare record. So
// that the lines stay true, each phase is told as
//
//   its mark   blocks that stay   kStats: the peak   ...   kAged: what was left out   kStats: its end
//
// for each device on which something was left out. The peak is that of each line, at the time of the
// highest allocated bytes; it is not told where it is what the phase began or ended with. Blocks have
// the time of the mark or peak before them. Of the samples of device and host the highest and the last stay.
//
// Several units together are told as one step without phases.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "ageing/rows.h"
#include "trace/event.h"

namespace gpumemtrace::ageing {

// Feed it every unit in order, aged or not. One thread at a time.
class Summary {
 public:
  // Appends the events of a unit that keeps all its records.
  void keep(const Rows& rows, std::vector<Event>& out);
  // Appends what `rows` are told as: those of one unit, or of several, which become one step.
  void age(const Rows& rows, bool are_several, std::vector<Event>& out);

 private:
  struct Part;  // one device during one phase

  void find_dropped(const Rows& rows);
  void age_phase(const Rows& rows, std::size_t begin, std::size_t end, std::vector<Event>& out);
  void study(const Rows& rows, std::size_t begin, std::size_t end);
  void study_kept(const Rows& rows, std::size_t begin, std::size_t end);
  void close_phases(const Event& at, std::vector<Event>& out);
  void reopen_phases(const Event& at, std::vector<Event>& out);
  Part* part_of(std::int16_t device);
  static void tell_block(const Rows& rows, std::size_t i, Part& part, Event& told);

  std::map<std::int16_t, Levels> levels_;  // of each device, after the last record
  std::map<std::uint32_t, Event> phases_;  // the last mark of each thread
  std::map<std::int16_t, Part> parts_;     // of the phase being told
  std::vector<std::uint8_t> is_dropped_;
  std::uint32_t steps_ = 1;
  bool are_several_ = false;
};

struct Summary::Part {
  Levels start, highest, end;
  std::size_t highest_at = 0;  // where allocated was highest
  std::int64_t highest_allocated = INT64_MIN;
  std::int64_t kept_before[2] = {0, 0};  // requested, allocated bytes of blocks that stay, up to
  std::int64_t kept_after[2] = {0, 0};   // the peak and after it
  std::uint64_t allocs = 0, alloc_bytes = 0, frees = 0, others = 0;  // left out
  bool has_dropped = false;  // blocks; only then anything is summarised
  bool unsure = false;
  std::uint32_t thread = 0;         // of the last record
  std::int64_t last_allocated = 0;  // in truth, after the last record gone through
  std::int64_t told_allocated = 0;  // as a reader has it by now
  std::uint64_t samples = 0, readings = 0;
  std::size_t highest_sample = 0;  // of the device's memory
  std::size_t last_sample = 0;
  std::uint64_t highest_sample_bytes = 0;
  bool tells_peak = false;
};

}  // namespace gpumemtrace::ageing
