#include "capture/drain.h"

#include <time.h>

#include <algorithm>
#include <exception>
#include <system_error>
#include <utility>

#include "capture/json.h"
#include "capture/producer_state.h"

namespace gpumemtrace::capture {
namespace {

constexpr std::uint64_t kSecondNs = 1'000'000'000;
constexpr std::size_t kMostWatchedPhases = 1024;
constexpr std::uint64_t kInFlightPatienceNs = kSecondNs / 5;

std::uint64_t thread_cpu_ns() noexcept {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<std::uint64_t>(used.tv_sec) * kSecondNs +
         static_cast<std::uint64_t>(used.tv_nsec);
}

constexpr std::uint64_t bit_of(Kind kind) noexcept {
  return std::uint64_t{1} << (static_cast<unsigned>(kind) % 64);
}

// Those that a process may have that never used GPU memory.
constexpr std::uint64_t kNotOfAllocator =
    bit_of(Kind::kDeviceUsed) | bit_of(Kind::kHostUsed) | bit_of(Kind::kPhase) |
    bit_of(Kind::kStep) | bit_of(Kind::kMark) | bit_of(Kind::kTag) | bit_of(Kind::kGap);
// Those that the drain itself looks at.
constexpr std::uint64_t kLookedAt = bit_of(Kind::kPhase) | bit_of(Kind::kAllocFailed);

std::string to_json(const Stalls& stalls) {
  return JsonObject()
      .add("count", stalls.count)
      .add("total_ns", stalls.total_ns)
      .add("longest_ns", stalls.longest_ns)
      .text();
}

// a comes before b, on a counter that wraps.
bool before(std::uint64_t a, std::uint64_t b) noexcept {
  return static_cast<std::int64_t>(a - b) < 0;
}

}  // namespace

Drain::Drain(DrainOptions options, const ClockPair& begin)
    : options_(std::move(options)),
      output_(options_.output),
      annotations_(options_.name_log),
      sampler_(options_.device_sample_interval_ns),
      host_sampler_(options_.device_sample_interval_ns),
      clock_(begin),
      batch_(kBatch),
      ring_position_(options_.ring->tail()),
      begin_(begin) {
  gaps_.reserve(kMostGaps);
}

std::uint64_t Drain::to_file_time(std::uint64_t at_ticks, std::int64_t latest_ns) noexcept {
  last_time_ns_ = std::max(last_time_ns_, std::min(clock_.to_ns(at_ticks), latest_ns));
  return static_cast<std::uint64_t>(last_time_ns_);
}

void Drain::open() {
  output_.open();
  annotations_.write_new_metadata(output_);
  annotations_.write_new_names(output_);
  name_segment();
}

// A segment that can be found says all that it must from its first moment on.
void Drain::name_segment() {
  if (options_.segment == nullptr || segment_is_named_ || output_.failed()) return;
  segment_is_named_ = true;
  commit();
  const int error =
      options_.segment->give_name(output_.writer()->options().trace_id, output_.witness(),
                                  options_.output.time_resolution_ns, begin_);
  if (error != 0) {
    const std::string why = std::generic_category().message(error);
    output_.write_metadata(
        JsonObject().add_raw("recovery", JsonObject().add("unavailable", why).text()).text());
  }
}

void Drain::append(const Event* events, std::size_t count) {
  output_.append(events, count);
  commit();
}

void Drain::commit() {
  if (options_.segment == nullptr || !output_.is_open()) return;
  // The trace has ended with its reason: nothing is to be found behind it. Before slots of the ring
  // are used again, which would leave a hole.
  if (output_.failed()) return options_.segment->remove_name();
  const Calibration::Piece piece = clock_.piece();
  Progress progress{};
  output_.describe_files(progress);
  progress.ring_position = ring_position_;
  progress.last_time_ns = last_time_ns_;
  progress.anchor_ticks = piece.anchor_ticks;
  progress.anchor_ns = piece.anchor_ns;
  progress.ns_per_tick = piece.ns_per_tick;
  if (!gaps_.empty()) progress.gap_position = gaps_.front().position;
  for (const Gap& gap : gaps_) progress.gap.add(gap.loss);
  options_.segment->commit(progress);
}

void Drain::age() noexcept {
  if (!output_.age()) return;
  commit();  // tells of both files, whichever of them is found
  output_.replace();
  commit();
}

bool Drain::pass() noexcept {
  std::uint64_t moved = 0;
  try {
    const std::uint64_t now_ns = monotonic_ns();
    const bool file_wanted = options_.flight && options_.flight->begin_pass(now_ns);
    if (clock_.update_due(now_ns)) clock_.update(read_clock_pair());
    moved = move_events();
    high_water_ = std::max(high_water_, moved);
    annotations_.write_new_metadata(output_);
    sample_memory(now_ns);
    flush_if_due(now_ns);
    // The trace has ended with its reason: nothing is to be found behind it.
    if (output_.failed() && options_.segment != nullptr) options_.segment->remove_name();
    publish_stats();
    if (options_.flight) keep_flight(file_wanted);
  } catch (const std::exception& error) {
    output_.fail(error.what());
    if (options_.flight) options_.flight->refuse(error.what(), true);
  }
  return moved > options_.ring->capacity() / 4;
}

// One ring full at most, so that fast producers can't keep a pass from ending. The head is not
// asked for: its line is the producers'.
std::uint64_t Drain::move_events() {
  Ring& ring = *options_.ring;
  const std::uint64_t begin = ring.tail();
  const std::uint64_t end = begin + ring.capacity();
  while (true) {
    note_loss();
    write_due_gaps();
    std::uint64_t stop = end;
    if (!gaps_.empty() && before(gaps_.front().position, stop)) stop = gaps_.front().position;
    std::uint64_t next = 0;
    const std::span<Event> batch = next_batch();
    const std::size_t count = ring.read(batch.data(), batch.size(), stop, next);
    if (next == ring_position_) break;
    ring_position_ = next;
    write_batch(batch.first(count));
    note_loss();  // while the ring is as it was: what is pushed from now on comes behind it
    ring.release(next);
    age();
  }
  return ring.tail() - begin;
}

// A ring that has been full stays so until pop() moves the tail: as long as that has not happened,
// everything lost belongs behind everything reserved.
void Drain::note_loss() {
  const Loss loss = options_.ring->take_loss();
  if (!loss.any()) return;
  dropped_ += loss.events;
  const std::uint64_t position = options_.ring->head();
  if (!gaps_.empty() && (gaps_.back().position == position || gaps_.size() == kMostGaps)) {
    gaps_.back().loss.add(loss);
    gaps_.back().position = position;
  } else {
    gaps_.push_back({position, loss});
  }
  commit();
}

void Drain::write_due_gaps() {
  while (!gaps_.empty() && !before(options_.ring->tail(), gaps_.front().position)) {
    const Loss& loss = gaps_.front().loss;
    const std::int64_t latest_ns = clock_.to_ns(ticks());
    Event event = gap_event(loss, clock_.to_ns(loss.last_ticks) - clock_.to_ns(loss.first_ticks));
    event.time = to_file_time(loss.first_ticks, latest_ns);
    ++gaps_written_;
    gaps_.erase(gaps_.begin());
    append(&event, 1);
  }
}

// In the stage itself, where there is one: read from the ring they are where they belong.
std::span<Event> Drain::next_batch() {
  std::span<Event> place = output_.place();
  if (place.empty()) place = batch_;
  return place.first(std::min(place.size(), kBatch));
}

// What changes with each event stays in registers.
void Drain::write_batch(std::span<Event> events) {
  const std::int64_t latest_ns = clock_.to_ns(ticks());
  const Calibration clock = clock_;
  std::int64_t last_ns = last_time_ns_;
  std::uint64_t kinds = 0;
  std::int16_t device = -1;
  for (Event& event : events) {
    last_ns = std::max(last_ns, std::min(clock.to_ns(event.time), latest_ns));
    event.time = static_cast<std::uint64_t>(last_ns);
    const std::uint64_t kind = bit_of(event.kind);
    kinds |= kind;
    if ((kind & kLookedAt) != 0) [[unlikely]]
      look_at(event);
    if (event.device != device && (kind & kNotOfAllocator) == 0) {
      device = event.device;
      sampler_.saw(device);
    }
  }
  last_time_ns_ = last_ns;
  if ((kinds & ~kNotOfAllocator) != 0 && options_.lazy) output_.open_or_warn();
  annotations_.write_new_names(output_);
  append(events.data(), events.size());
  if (output_.is_open()) name_segment();
}

void Drain::look_at(const Event& event) {
  if (event.kind == Kind::kPhase) watch_phase(event.size);
  if (event.kind == Kind::kAllocFailed && options_.flight) options_.flight->saw_failed_alloc();
}

// What CUDA's libraries take, they take when they are first used: the memory of the device is
// looked at when a phase begins for the first time, and when that first time ends.
void Drain::watch_phase(std::uint64_t path) {
  const bool is_new =
      known_phases_.size() < kMostWatchedPhases && known_phases_.insert(path).second;
  if (is_new || phase_is_new_) sampler_.ask();
  phase_is_new_ = is_new;
}

void Drain::sample_memory(std::uint64_t now_ns) {
  if (output_.failed()) return;
  std::vector<Event> events = sampler_.sample(now_ns);
  if (sampler_.has_read()) {
    for (const Event& event : host_sampler_.sample(now_ns)) events.push_back(event);
  }
  for (Event& event : events) {
    const std::uint64_t now_ticks = ticks();
    event.time = to_file_time(now_ticks, clock_.to_ns(now_ticks));
    append(&event, 1);
  }
}

// One drain interval early: then everything older than the flush interval is in the file.
void Drain::flush_if_due(std::uint64_t now_ns) {
  if (now_ns < next_flush_ns_) return;
  next_flush_ns_ = now_ns + options_.flush_interval_ns -
                   std::min(options_.drain_interval_ns, options_.flush_interval_ns);
  annotations_.write_source_metadata(output_);
  tell_stalls();
  output_.flush();
  age();
  if (now_ns >= next_file_check_ns_) {
    next_file_check_ns_ = now_ns + kSecondNs;
    output_.check_still_there();
  }
}

// In the run record, so that a process that is killed has told them too.
void Drain::tell_stalls() {
  const Stalls news = options_.ring->take_stalls();
  if (news.count == 0) return;
  stalls_.add(news);
  output_.write_metadata(JsonObject().add_raw("stalls", to_json(stalls_)).text());
}

void Drain::finish(const std::string& footer_json) noexcept {
  Ring& ring = *options_.ring;
  const std::uint64_t end = ring.head();
  sampler_.ask();
  const std::uint64_t patience_ends_ns = monotonic_ns() + kInFlightPatienceNs;
  do {
    pass();
    if (!before(ring.tail(), end)) break;
    const timespec moment{0, 100'000};
    nanosleep(&moment, nullptr);
  } while (monotonic_ns() < patience_ends_ns);
  try {
    note_loss();
    for (Gap& gap : gaps_) gap.position = ring.tail();
    write_due_gaps();
    close(footer_json, "end");
    publish_stats();
  } catch (const std::exception& error) {
    output_.fail(error.what());
  }
}

void Drain::close(const std::string& footer_json, const std::string& trigger) {
  next_flush_ns_ = 0;
  flush_if_due(monotonic_ns());
  if (!options_.flight) return output_.close(footer(footer_json));
  if (!output_.is_open()) return options_.flight->refuse("nothing was recorded", true);
  const FlightFile file = options_.flight->write_last(trigger, footer(footer_json));
  const std::lock_guard guard(mutex_);
  if (stats_.error.empty()) stats_.error = file.error;
}

std::string Drain::footer(const std::string& footer_json) {
  publish_stats();
  const DrainStats totals = stats();
  return with_key(footer_json, "totals",
                  JsonObject()
                      .add("events", totals.events)
                      .add("dropped", totals.dropped)
                      .add("gaps", totals.gaps)
                      .add("skipped", skipped_events())
                      .add_raw("stalls", to_json(totals.stalls))
                      .add("ring_capacity", std::uint64_t{options_.ring->capacity()})
                      .add("ring_high_water", totals.ring_high_water)
                      .add("drain_cpu_ns", totals.cpu_ns)
                      .text());
}

void Drain::keep_flight(bool is_wanted) {
  FlightRecorder& flight = *options_.flight;
  if (!output_.is_open()) {
    if (is_wanted) flight.refuse("nothing has been recorded yet", false);
    return;
  }
  if (is_wanted) {
    output_.flush();
    flight.write_wanted([this](const std::string& reason) {
      return footer(JsonObject().add("reason", reason).text());
    });
  }
  if (last_time_ns_ - flight.window().group_began_ns() >= flight.group_ns()) {
    output_.begin_keyframe();
  }
  flight.window().trim();
}

void Drain::write_before_end(const std::string& trigger) noexcept {
  try {
    pass();
    close(JsonObject().add("reason", trigger).text(), trigger);
  } catch (const std::exception& error) {
    output_.fail(error.what());
  }
}

void Drain::publish_stats() {
  const std::lock_guard guard(mutex_);
  stats_.events = output_.events();
  stats_.dropped = dropped_;
  stats_.gaps = gaps_written_;
  stats_.stalls = stalls_;
  stats_.bytes_written =
      options_.flight ? options_.flight->last_file_bytes() : output_.bytes_written();
  stats_.ring_high_water = high_water_;
  stats_.cpu_ns = thread_cpu_ns();
  stats_.file_created =
      options_.flight ? options_.flight->last_file_bytes() != 0 : output_.is_open();
  if (stats_.error.empty()) stats_.error = output_.error();
}

DrainStats Drain::stats() const {
  const std::lock_guard guard(mutex_);
  return stats_;
}

}  // namespace gpumemtrace::capture
