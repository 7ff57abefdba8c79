#include "capture/drain.h"

#include <time.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "capture/json.h"
#include "capture/names.h"
#include "capture/producer_state.h"
#include "capture/threads.h"

namespace gpumemtrace::capture {
namespace {

constexpr std::uint64_t kSecondNs = 1'000'000'000;
constexpr std::uint64_t kInFlightPatienceNs = kSecondNs / 5;

std::uint64_t thread_cpu_ns() noexcept {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<std::uint64_t>(used.tv_sec) * kSecondNs +
         static_cast<std::uint64_t>(used.tv_nsec);
}

// What makes a process one that used GPU memory.
bool is_allocator_event(Kind kind) noexcept {
  switch (kind) {
    case Kind::kDeviceUsed:
    case Kind::kPhase:
    case Kind::kStep:
    case Kind::kMark:
    case Kind::kTag:
    case Kind::kGap:
      return false;
    default:
      return true;
  }
}

// a comes before b, on a counter that wraps.
bool before(std::uint64_t a, std::uint64_t b) noexcept {
  return static_cast<std::int64_t>(a - b) < 0;
}

}  // namespace

Drain::Drain(DrainOptions options, const ClockPair& begin)
    : options_(std::move(options)),
      output_(options_.output),
      clock_(begin),
      batch_(kBatch),
      discard_until_(options_.ring->head()) {
  gaps_.reserve(kMostGaps);
  add_skipped(options_.ring->take_loss().events);
}

std::uint64_t Drain::to_file_time(std::uint64_t at_ticks, std::int64_t latest_ns) noexcept {
  last_time_ns_ = std::max(last_time_ns_, std::min(clock_.to_ns(at_ticks), latest_ns));
  return static_cast<std::uint64_t>(last_time_ns_);
}

void Drain::open() {
  output_.open();
  write_metadata_if_new();
}

bool Drain::pass() noexcept {
  try {
    const std::uint64_t now_ns = monotonic_ns();
    if (clock_.update_due(now_ns)) clock_.update(read_clock_pair());
    high_water_ = std::max(high_water_, options_.ring->unread());
    move_events();
    write_metadata_if_new();
    sample_devices(now_ns);
    flush_if_due(now_ns);
    publish_stats();
  } catch (const std::exception& error) {
    output_.fail(error.what());
  }
  return options_.ring->unread() > options_.ring->capacity() / 4;
}

// Up to the head seen at the beginning, so that fast producers can't keep a pass from ending.
void Drain::move_events() {
  Ring& ring = *options_.ring;
  const std::uint64_t end = ring.head();
  while (true) {
    note_loss();
    write_due_gaps();
    const bool gap_comes_first = !gaps_.empty() && before(gaps_.front().position, end);
    const std::size_t count =
        ring.pop(batch_.data(), kBatch, gap_comes_first ? gaps_.front().position : end);
    if (count == 0) break;
    write_batch(count);
  }
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
}

void Drain::write_due_gaps() {
  while (!gaps_.empty() && !before(options_.ring->tail(), gaps_.front().position)) {
    const Loss& loss = gaps_.front().loss;
    Event event{};
    event.kind = Kind::kGap;
    event.device = -1;
    event.address = loss.events;
    event.size = loss.alloc_bytes;
    event.stream = loss.frees;
    const std::int64_t latest_ns = clock_.to_ns(ticks());
    const std::int64_t lasted_ns = clock_.to_ns(loss.last_ticks) - clock_.to_ns(loss.first_ticks);
    event.extra = static_cast<std::uint64_t>(std::max<std::int64_t>(lasted_ns, 0));
    event.time = to_file_time(loss.first_ticks, latest_ns);
    output_.append(&event, 1);
    ++gaps_written_;
    gaps_.erase(gaps_.begin());
  }
}

// The last `count` positions before tail.
void Drain::write_batch(std::size_t count) {
  std::size_t first = 0;
  if (before(options_.ring->tail() - count, discard_until_)) {
    first = std::min<std::uint64_t>(count, discard_until_ - (options_.ring->tail() - count));
    add_skipped(first);
  }
  const std::int64_t latest_ns = clock_.to_ns(ticks());
  bool wants_file = false;
  for (std::size_t i = first; i < count; ++i) {
    Event& event = batch_[i];
    event.time = to_file_time(event.time, latest_ns);
    if (is_allocator_event(event.kind)) {
      wants_file = true;
      if (event.device >= 0 && event.device < kMaxDevices) devices_in_use_ |= 1U << event.device;
    }
  }
  if (wants_file && options_.lazy) output_.open_or_warn();
  write_names_if_new();
  output_.append(batch_.data() + first, count - first);
}

// After the events were read and before they are written: whoever used a name defined it first.
void Drain::write_names_if_new() {
  if (!output_.is_open()) return;
  ThreadRegistry& registry = thread_registry();
  if (names_started_ && !name_table().has_news() && registry.size() == threads_written_) return;
  names_started_ = true;
  std::string phases;
  std::string strings;
  name_table().collect(phases, strings);
  std::vector<ThreadEntry> entries;
  registry.copy_from(threads_written_, entries);
  std::string threads;
  for (const ThreadEntry& entry : entries) {
    if (!threads.empty()) threads += ',';
    threads += '[' + std::to_string(++threads_written_) + ',' + std::to_string(entry.os_tid) + ',';
    append_json_string(threads, entry.name);
    threads += ']';
  }
  if (phases.empty() && strings.empty() && threads.empty()) return;
  output_.write_names(JsonObject()
                          .add_raw("phases", '[' + phases + ']')
                          .add_raw("strings", '[' + strings + ']')
                          .add_raw("threads", '[' + threads + ']')
                          .text());
}

void Drain::write_metadata_if_new() {
  std::vector<std::string> added;
  {
    const std::lock_guard guard(mutex_);
    added.swap(new_metadata_);
  }
  for (std::string& json : added) output_.write_metadata(std::move(json));
}

void Drain::sample_devices(std::uint64_t now_ns) {
  const DeviceProbe* probe = device_probe();
  if (probe == nullptr || devices_in_use_ == 0 || options_.device_sample_interval_ns == 0 ||
      now_ns < next_sample_ns_ || output_.failed()) {
    return;
  }
  next_sample_ns_ = now_ns + options_.device_sample_interval_ns;
  for (std::size_t device = 0; device < kMaxDevices; ++device) {
    DeviceMemory memory;
    if ((devices_in_use_ >> device & 1U) == 0 ||
        !reader_.read(*probe, static_cast<int>(device), memory)) {
      continue;
    }
    // A figure that stays the same is told once a second.
    if (memory == last_sample_[device] && now_ns < last_sample_ns_[device] + kSecondNs) continue;
    last_sample_[device] = memory;
    last_sample_ns_[device] = now_ns;
    Event event{};
    event.kind = Kind::kDeviceUsed;
    event.device = static_cast<std::int16_t>(device);
    event.address = memory.own_bytes;
    event.size = memory.used_bytes;
    event.stream = memory.capacity_bytes;
    const std::uint64_t now_ticks = ticks();
    event.time = to_file_time(now_ticks, clock_.to_ns(now_ticks));
    output_.append(&event, 1);
  }
}

// One drain interval early: then everything older than the flush interval is in the file.
void Drain::flush_if_due(std::uint64_t now_ns) {
  if (now_ns < next_flush_ns_) return;
  next_flush_ns_ = now_ns + options_.flush_interval_ns -
                   std::min(options_.drain_interval_ns, options_.flush_interval_ns);
  if (const MetadataSource source = metadata_source(); source != nullptr && output_.is_open()) {
    std::string text(std::size_t{64} << 10, '\0');
    text.resize(std::min(source(text.data(), text.size()), text.size()));
    if (!text.empty() && text != source_metadata_) {
      source_metadata_ = text;
      output_.write_metadata(std::move(text));
    }
  }
  output_.flush();
  if (now_ns >= next_file_check_ns_) {
    next_file_check_ns_ = now_ns + kSecondNs;
    output_.check_still_there();
  }
}

void Drain::finish(const std::string& footer_json) noexcept {
  Ring& ring = *options_.ring;
  const std::uint64_t end = ring.head();
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
    next_flush_ns_ = 0;
    flush_if_due(monotonic_ns());
    publish_stats();
    const DrainStats totals = stats();
    output_.close(with_key(footer_json, "totals",
                           JsonObject()
                               .add("events", totals.events)
                               .add("dropped", totals.dropped)
                               .add("gaps", totals.gaps)
                               .add("skipped", skipped_events())
                               .add("ring_capacity", std::uint64_t{ring.capacity()})
                               .add("ring_high_water", totals.ring_high_water)
                               .add("drain_cpu_ns", totals.cpu_ns)
                               .text()));
    publish_stats();
  } catch (const std::exception& error) {
    output_.fail(error.what());
  }
}

void Drain::add_metadata(const std::string& json) {
  const std::lock_guard guard(mutex_);
  new_metadata_.push_back(json);
}

void Drain::publish_stats() {
  const std::lock_guard guard(mutex_);
  stats_.events = output_.events();
  stats_.dropped = dropped_;
  stats_.gaps = gaps_written_;
  stats_.bytes_written = output_.bytes_written();
  stats_.ring_high_water = high_water_;
  stats_.cpu_ns = thread_cpu_ns();
  stats_.file_created = output_.is_open();
  if (stats_.error.empty()) stats_.error = output_.error();
}

DrainStats Drain::stats() const {
  const std::lock_guard guard(mutex_);
  return stats_;
}

}  // namespace gpumemtrace::capture
