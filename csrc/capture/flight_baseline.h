// What the events before a flight recording have left: told again as events, so that the lines, the
// blocks in use, phase and step are right from the first event kept.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "capture/flight_segments.h"
#include "compute/totals.h"
#include "trace/event.h"
#include "trace/event_columns.h"

namespace gpumemtrace::capture {

// One thread at a time. Memory is that of the blocks in use, not of the events.
class FlightBaseline final : private compute::BlockObserver {
 public:
  // The next `count` events, in order.
  void feed(const EventColumns& events, std::size_t count);

  std::uint64_t events() const noexcept { return events_; }

  // All of it as events, at the time of the last event fed: the step (kStepInside), segments, blocks
  // (kAlloc, with the bytes allocated so far), counters (kStats, kBaseline; a kGap of 0 events where
  // they aren't sure), tags, open pools, the latest samples, phases.
  std::vector<Event> tell();

  // What can't be told as events, as a JSON object.
  std::string to_json() const;

 private:
  static constexpr std::size_t kLines = 4;  // requested, allocated, active, reserved
  struct Live {
    Event event;
    std::int64_t allocated;
    std::uint64_t born;  // number of the event
  };
  struct Note {  // on a block: kTag, kRecordStream
    Event event;
    std::uint64_t number;
  };
  struct Device {
    std::array<std::int64_t, kLines> peak_bytes{};
    std::uint64_t device_used_peak_bytes = 0;
    Event used{};  // the latest kDeviceUsed; kind 0: none
  };

  std::uint32_t born(const compute::Columns& records, std::size_t i, std::int64_t number,
                     std::int64_t allocated) override;
  void resized(std::uint32_t block, std::int64_t allocated) override;
  void died(std::uint32_t block, std::size_t i) override;

  void feed_rare(const Event& event);
  void enter_phase(const Event& event);
  void note(const Event& event);
  std::vector<const Live*> live_by_address() const;
  void drop_dead_notes();
  void tell_blocks(std::vector<Event>& out) const;
  void tell_counters(std::vector<Event>& out) const;
  void tell_phases(std::vector<Event>& out) const;

  compute::LineBuilder lines_;
  FlightSegments segments_;
  std::vector<Live> live_;
  std::vector<std::uint32_t> free_places_;  // in live_
  const EventColumns* fed_ = nullptr;       // during feed()
  std::vector<Note> notes_;
  std::size_t notes_kept_ = 0;  // after the last drop_dead_notes()
  std::map<std::int16_t, Device> devices_;
  std::map<std::uint32_t, Event> phases_;  // by thread: the latest, if one is open
  std::uint32_t process_wide_thread_ = 0;  // whose phase holds for every thread; 0: nobody's
  std::vector<Event> open_pools_;
  Event step_{};
  Event host_used_{};
  std::uint64_t events_ = 0;
  std::uint64_t ooms_ = 0;
  std::uint64_t retries_ = 0;
  std::uint64_t dropped_ = 0;
  std::int64_t last_time_ns_ = 0;

  // Where the lines of a batch go.
  std::vector<std::int16_t> line_device_;
  std::array<std::vector<std::int64_t>, kLines> line_bytes_;
  std::vector<std::uint8_t> line_uncertain_;
};

}  // namespace gpumemtrace::capture
