// Codec 2: events to the payload of a chunk, by comparing them with those before. The layout is
// drawn in history_format.h; history_decoder.h is the mirror.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "trace/bits.h"
#include "trace/event.h"
#include "trace/history.h"
#include "trace/history_format.h"
#include "trace/history_lookup.h"
#include "trace/instruction_writer.h"
#include "trace/time_units.h"

namespace gpumemtrace {

// Chunks chain: each is encoded with what those before it left here. 5 MiB beside the chunk,
// however long the trace. One thread at a time.
class HistoryEncoder {
 public:
  // Forgets everything: the next chunk will be a keyframe.
  void reset() noexcept;
  // A chunk: begin(), add() as often as you like, finish(). Any may throw std::bad_alloc; the chain
  // is broken then.
  void begin(std::uint64_t time_resolution_ns);
  // Takes the next events of the chunk while they are in the cache. Returns how many: the last few
  // wait, since those behind them are looked at too; they come again with the next call. The payload
  // does not depend on how the events were divided.
  std::size_t add(const Event* events, std::size_t count);
  // Takes the last `count` events, of which there may be none, and appends the payload to `out`.
  void finish(const Event* events, std::size_t count, std::vector<std::uint8_t>& out);
  // All at once.
  void encode(const Event* events, std::size_t count, std::uint64_t time_resolution_ns,
              std::vector<std::uint8_t>& out) {
    begin(time_resolution_ns);
    finish(events, count, out);
  }

 private:
  // Takes events from `events` on and returns how many.
  std::size_t encode_next(const Event* events, std::size_t left);
  // The first of them is a copy of its source.
  std::size_t copy_run(const Event* events, std::size_t left);
  // The events, at least one, are copies of those from the source on.
  void copy(const Event* events, std::size_t count);
  // Leaves in `foreseen` what follows the source; whether that is the event.
  bool follows(const Event& event, History::Entry& foreseen) const noexcept;
  // Whether there is a better source than until now: it is one then.
  bool find_source(const Event* events, std::size_t left);
  // How many of the events are copies of those from `number` on; only a few are looked at.
  std::size_t match_length(std::uint64_t number, const Event* events,
                           std::size_t left) const noexcept;
  void jump_to(std::uint64_t number);
  // Takes the event, which has a source, into the history with the references of `entry`.
  void append(const Event& event, const History::Entry& entry);
  // kAdd or kAside.
  void tell(Operation operation, const Event& event);
  // Instruction and values; completes the references of `entry`, which says what is foreseen.
  void put_fields(Operation operation, const Event& event, History::Entry& entry);
  // Time of an event with a source, and of one without: puts the error, learns from it.
  TimeGuess put_time(std::uint64_t time, TimeGuess guess);
  void put_time_alone(std::uint64_t time);

  History history_;
  HistoryLookup lookup_;
  InstructionWriter instructions_;
  BitWriter times_;
  TimeUnits units_ = TimeUnits(1);
  bool has_source_ = false;
  std::uint64_t source_ = 0;
  std::uint64_t copies_followed_ = 0;    // how many of the events last followed were copies, too
  std::uint64_t last_time_ = 0;          // of the last event
  std::uint64_t last_history_time_ = 0;  // of the last one in the history
  TimeGuess alone_ = {0, 0};
};

}  // namespace gpumemtrace
