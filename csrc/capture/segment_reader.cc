#include "capture/segment_reader.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <memory>
#include <system_error>

#include "capture/clock.h"
#include "capture/json.h"

namespace gpumemtrace::capture {
namespace {

constexpr std::size_t kSlotsAtOnce = 16'384;
constexpr std::uint64_t kMostRingSlots = std::uint64_t{1} << 28;  // start_session's limit
// Sequence numbers of a trace stay below, so that sums of two don't wrap.
constexpr std::uint64_t kMostEvents = std::uint64_t{1} << 61;

void read_at(int descriptor, std::uint64_t offset, void* out, std::size_t size_bytes) {
  std::size_t done = 0;
  while (done < size_bytes) {
    const ssize_t got = ::pread(descriptor, static_cast<char*>(out) + done, size_bytes - done,
                                static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw std::system_error(errno, std::generic_category(), "read");
    if (got == 0) throw SegmentError("it has become shorter");
    done += static_cast<std::size_t>(got);
  }
}

// A copy of one struct of the layout.
template <class T>
std::unique_ptr<T> copy_of(int descriptor, std::uint64_t offset) {
  auto copy = std::make_unique<T>();
  read_at(descriptor, offset, static_cast<void*>(copy.get()), sizeof(T));
  return copy;
}

// Ticks to ns since the trace began, as the drain would have done it.
class Times {
 public:
  Times(const SegmentHeader& header, const Progress& progress) : last_ns_(progress.last_time_ns) {
    if (std::isnormal(progress.ns_per_tick) && std::abs(progress.ns_per_tick) < 1e9) {
      anchor_ticks_ = progress.anchor_ticks;
      anchor_ns_ = progress.anchor_ns;
      ns_per_tick_ = progress.ns_per_tick;
      return;
    }
    // It ended before a rate was measured. The machine has not been restarted since, so the two
    // clocks are still the same.
    const ClockPair now = read_clock_pair();
    anchor_ticks_ = header.begin_ticks;
    const auto ticks_passed = static_cast<double>(now.ticks - header.begin_ticks);
    const auto ns_passed = static_cast<double>(now.ns - header.begin_ns);
    if (ticks_passed > 0.0) ns_per_tick_ = ns_passed / ticks_passed;
  }

  std::int64_t to_ns(std::uint64_t ticks) const noexcept {
    const auto since = static_cast<double>(static_cast<std::int64_t>(ticks - anchor_ticks_));
    const double ns = since * ns_per_tick_ + static_cast<double>(anchor_ns_);
    return static_cast<std::int64_t>(std::clamp(ns, -4e18, 4e18));
  }
  // Never before the event before it.
  std::uint64_t next(std::uint64_t ticks) noexcept {
    last_ns_ = std::max(last_ns_, to_ns(ticks));
    return static_cast<std::uint64_t>(last_ns_);
  }

 private:
  std::uint64_t anchor_ticks_ = 0;
  std::int64_t anchor_ns_ = 0;
  double ns_per_tick_ = 1.0;
  std::int64_t last_ns_;
};

void append_gap(const Loss& loss, Times& times, std::vector<Event>& events) {
  if (!loss.any()) return;
  Event event = gap_event(loss, times.to_ns(loss.last_ticks) - times.to_ns(loss.first_ticks));
  event.time = times.next(loss.first_ticks);
  events.push_back(event);
}

// Slots from `progress` on whose word names their position; a producer that had reserved its slot
// and not filled it leaves a hole.
void append_ring(int descriptor, const SegmentHeader& header, const Progress& progress,
                 Times& times, std::vector<Event>& events) {
  const std::uint64_t mask = header.ring_capacity - 1;
  const std::size_t at_once = std::min<std::uint64_t>(header.ring_capacity, kSlotsAtOnce);
  const auto slots = std::make_unique<Slot[]>(at_once);
  bool gap_is_due = progress.gap.any();
  std::uint64_t position = progress.ring_position;
  const std::uint64_t end = position + header.ring_capacity;
  while (position != end) {
    const std::uint64_t first = position & mask;
    const auto count = static_cast<std::size_t>(
        std::min<std::uint64_t>({at_once, header.ring_capacity - first, end - position}));
    read_at(descriptor, kRingOffset + first * sizeof(Slot), static_cast<void*>(slots.get()),
            count * sizeof(Slot));
    for (std::size_t i = 0; i < count; ++i, ++position) {
      if (gap_is_due && position == progress.gap_position) {
        append_gap(progress.gap, times, events);
        gap_is_due = false;
      }
      if (slots[i].published.load(std::memory_order_relaxed) != position + 1) continue;
      events.push_back(slots[i].event);
      events.back().time = times.next(slots[i].event.time);
    }
  }
  if (gap_is_due) append_gap(progress.gap, times, events);
}

Loss read_untaken_loss(int descriptor, const SegmentHeader& header) {
  const auto extras =
      copy_of<RingExtras>(descriptor, kRingOffset + header.ring_capacity * sizeof(Slot));
  constexpr auto kRelaxed = std::memory_order_relaxed;
  return {extras->lost_events.load(kRelaxed), extras->lost_alloc_bytes.load(kRelaxed),
          extras->lost_frees.load(kRelaxed), extras->first_loss_ticks.load(kRelaxed),
          extras->last_loss_ticks.load(kRelaxed)};
}

// The tables of a names chunk, element by element.
struct NameTables {
  std::string phases;
  std::string strings;
  std::string threads;

  void add(const NameEntry& entry, std::string_view text) {
    std::string* const table = entry.type == NameEntryType::kPhase    ? &phases
                               : entry.type == NameEntryType::kString ? &strings
                               : entry.type == NameEntryType::kThread ? &threads
                                                                      : nullptr;
    if (table == nullptr) return;
    if (!table->empty()) *table += ',';
    *table += '[' + std::to_string(entry.id) + ',';
    if (table != &strings) *table += std::to_string(entry.parent) + ',';
    append_json_string(*table, text);
    *table += ']';
  }
};

void read_names(int descriptor, LeftBehind& left) {
  NameTables tables;
  bool any = false;
  for (std::size_t i = 0; i < 2; ++i) {
    const auto page = copy_of<NamesPage>(descriptor, kNamesOffset + i * kNamesPageBytes);
    const std::size_t used = std::min<std::size_t>(page->used_bytes.load(std::memory_order_relaxed),
                                                   sizeof page->entries);
    left.names_left_out += page->left_out;
    for (std::size_t at = 0; used - at >= sizeof(NameEntry);) {
      NameEntry entry{};
      std::memcpy(&entry, page->entries + at, sizeof entry);
      at += sizeof entry;
      if (entry.text_bytes > used - at) break;
      tables.add(entry, {reinterpret_cast<const char*>(page->entries) + at, entry.text_bytes});
      at += entry.text_bytes;
      any = true;
    }
  }
  if (!any) return;
  left.names_json = JsonObject()
                        .add_raw("phases", '[' + tables.phases + ']')
                        .add_raw("strings", '[' + tables.strings + ']')
                        .add_raw("threads", '[' + tables.threads + ']')
                        .text();
}

}  // namespace

bool is_retired(int descriptor) {
  char magic[sizeof kRetiredMagic];
  return ::pread(descriptor, magic, sizeof magic, 0) == sizeof magic &&
         std::memcmp(magic, kRetiredMagic, sizeof magic) == 0;
}

SegmentHeader read_segment_header(int descriptor, std::uint64_t size_bytes) {
  if (size_bytes < kRingOffset) throw SegmentError("it is too short");
  SegmentHeader header{};
  read_at(descriptor, 0, &header, sizeof header);
  if (std::memcmp(header.magic, kSegmentMagic, sizeof kSegmentMagic) != 0) {
    throw SegmentError("it does not begin like one of ours");
  }
  if (header.version != kSegmentVersion) {
    throw SegmentError("another version of gpumemtrace wrote it; open the trace with that one");
  }
  if (!std::has_single_bit(header.ring_capacity) || header.ring_capacity < 2 ||
      header.ring_capacity > kMostRingSlots || header.total_bytes != size_bytes ||
      segment_bytes(header.ring_capacity) > size_bytes || header.time_resolution_ns < 1 ||
      header.time_resolution_ns > INT64_MAX) {
    throw SegmentError("its header holds impossible numbers");
  }
  header.file_path[sizeof header.file_path - 1] = '\0';
  header.writer.boot_id[sizeof header.writer.boot_id - 1] = '\0';
  return header;
}

bool is_file(const FileProgress& file, const struct stat& status) noexcept {
  return file.inode != 0 && file.inode == status.st_ino && file.device == status.st_dev;
}

Progress read_progress(int descriptor) {
  const auto log = copy_of<ProgressLog>(descriptor, kProgressOffset);
  const Progress* const progress = log->latest();
  if (progress == nullptr) throw SegmentError("nothing was entered in it");
  bool is_possible = progress->staged <= kStageEvents;
  for (const FileProgress& file : progress->files) {
    is_possible &= file.first_sequence <= kMostEvents;
  }
  if (!is_possible) throw SegmentError("it holds impossible numbers");
  return *progress;
}

LeftBehind read_segment(int descriptor, const SegmentHeader& header, const Progress& progress) {
  LeftBehind left;
  left.events.resize(static_cast<std::size_t>(progress.staged));
  if (!left.events.empty()) {
    read_at(descriptor, kStageOffset, left.events.data(), left.events.size() * sizeof(Event));
  }
  Times times(header, progress);
  append_ring(descriptor, header, progress, times, left.events);
  append_gap(read_untaken_loss(descriptor, header), times, left.events);
  read_names(descriptor, left);
  return left;
}

}  // namespace gpumemtrace::capture
