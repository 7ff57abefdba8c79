#include "trace/history_encoder.h"

#include <algorithm>

#include "trace/varint.h"

namespace gpumemtrace {
namespace {

// A match must be this long to be worth a jump; how far it goes beyond is not looked at.
constexpr std::size_t kWorthwhileMatch = 8;
constexpr std::size_t kMatchLimit = 24;
// What followed events refer to lies anywhere in the history.
constexpr std::uint64_t kPrefetchedEvents = 8;
// Following and copying come to the same for so many events: copy, that is faster to decode.
constexpr std::uint64_t kCopiesToSwitch = 64;
// Copies whose fields and times stay in the nearest cache.
constexpr std::size_t kCopiesAtOnce = 128;

// Sampled by a clock, or told when memory is short: they come at another place in every step.
constexpr bool is_aside(Kind kind) noexcept {
  switch (kind) {
    case Kind::kAlloc:
    case Kind::kFree:
    case Kind::kPhase:
    case Kind::kMark:
    case Kind::kTag:
    case Kind::kPoolBegin:
    case Kind::kPoolEnd:
    case Kind::kRecordStream:
      return false;
    default:
      return true;
  }
}

}  // namespace

void HistoryEncoder::reset() noexcept {
  history_.reset();
  lookup_.reset();
  has_source_ = false;
  copies_followed_ = 0;
  last_time_ = 0;
  last_history_time_ = 0;
  alone_ = {0, 0};
}

void HistoryEncoder::begin(std::uint64_t time_resolution_ns) {
  instructions_.clear();
  times_.clear();
  units_ = TimeUnits(time_resolution_ns);
}

std::size_t HistoryEncoder::add(const Event* events, std::size_t count) {
  std::size_t taken = 0;
  while (count - taken > kMatchLimit) taken += encode_next(events + taken, count - taken);
  return taken;
}

void HistoryEncoder::finish(const Event* events, std::size_t count,
                            std::vector<std::uint8_t>& out) {
  for (std::size_t taken = 0; taken < count;) taken += encode_next(events + taken, count - taken);
  const std::vector<std::uint8_t>& instructions = instructions_.finish();
  std::uint8_t size[kMaxVarintBytes];
  out.insert(out.end(), size, put_varint(size, instructions.size()));
  out.insert(out.end(), instructions.begin(), instructions.end());
  times_.finish(out);
}

std::size_t HistoryEncoder::encode_next(const Event* events, std::size_t left) {
  const Event& event = *events;
  if (is_aside(event.kind)) {
    tell(Operation::kAside, event);
    return 1;
  }
  const auto is_copy = [&] { return has_source_ && history_.equals(source_, event); };
  const bool copies = is_copy();
  if (copies && !instructions_.is_in(Operation::kFollow)) return copy_run(events, left);
  History::Entry foreseen{};
  bool is_foreseen = has_source_ && follows(event, foreseen);
  if (is_foreseen) {
    copies_followed_ = copies ? copies_followed_ + 1 : 0;
    if (copies_followed_ >= kCopiesToSwitch) return copy_run(events, left);
  } else if (copies) {
    return copy_run(events, left);
  } else {
    lookup_.update(history_);
    if (find_source(events, left)) {
      if (is_copy()) return copy_run(events, left);
      is_foreseen = follows(event, foreseen);
    }
  }
  if (is_foreseen) {
    instructions_.extend_run(Operation::kFollow, 1);
    append(event, foreseen);
  } else if (has_source_ && foreseen.event.kind == event.kind) {
    put_fields(Operation::kEdit, event, foreseen);
    append(event, foreseen);
  } else {
    tell(Operation::kAdd, event);
  }
  return 1;
}

// How many are compared before their times are put: with both in one loop, what it needs does not fit
// the registers.
std::size_t HistoryEncoder::copy_run(const Event* events, std::size_t left) {
  std::size_t taken = 0;
  std::size_t count = 0;
  do {
    const std::size_t most = std::min(left - taken, kCopiesAtOnce);
    count = history_.count_copies(source_, events + taken, most);
    copy(events + taken, count);
    taken += count;
  } while (count == kCopiesAtOnce);
  copies_followed_ = 0;
  instructions_.extend_run(Operation::kCopy, taken);
  return taken;
}

// As put_time, for each of the copies; what changes with each stays in registers.
void HistoryEncoder::copy(const Event* events, std::size_t count) {
  const TimeUnits units = units_;
  BitWriter::Burst times(times_, count);
  std::uint64_t last = last_history_time_;
  const Event* next = events;
  history_.append_copies(source_, count, [&](const Event&, TimeGuess& guess) {
    const std::uint64_t time = units.of(next->time);
    const std::uint64_t error = time - (last + guess.gap);
    times.put_rice(zigzag(error), guess.rice_bits());
    guess = guess.after(error);
    last = time;
    ++next;
  });
  times.finish();
  last_time_ = last;
  last_history_time_ = last;
  source_ += count;
}

bool HistoryEncoder::follows(const Event& event, History::Entry& foreseen) const noexcept {
  history_.prefetch_referred(source_ + kPrefetchedEvents, kPrefetchedEvents);
  foreseen = history_.follow(source_);
  const Event& guess = foreseen.event;
  return guess.address == event.address && guess.size == event.size &&
         guess.stream == event.stream && history_.foreseen_extra(guess) == event.extra &&
         guess.thread == event.thread && guess.site == event.site && guess.flags == event.flags &&
         guess.device == event.device && guess.kind == event.kind;
}

// After a miss: the source stays where it is (false) unless another place clearly does better.
bool HistoryEncoder::find_source(const Event* events, std::size_t left) {
  const Event& event = *events;
  const std::uint64_t size = history_.size();
  const auto move_to = [&](std::uint64_t number) {
    jump_to(number);
    return true;
  };
  if (const std::uint32_t same = lookup_.find_same(history_, event); same != 0) {
    const std::size_t there = match_length(size - same, events, left);
    const auto here = [&] {
      return has_source_ ? 1 + match_length(source_ + 1, events + 1, left - 1) : 0;
    };
    if (there >= std::min(left, kWorthwhileMatch) && there > here()) return move_to(size - same);
  }
  const bool fits = has_source_ && history_.event(source_).kind == event.kind;
  // The right block, but at another address: as good as it gets.
  if (fits && event.kind == Kind::kAlloc && history_.event(source_).size == event.size) {
    return false;
  }
  const std::uint32_t alike = lookup_.find_alike(history_, event);
  if (alike == 0 || (has_source_ && size - alike == source_)) return false;
  const History::Entry foreseen = history_.follow(size - alike);
  if (foreseen.event.kind != event.kind) return false;
  const bool right = foreseen.event.address == event.address && foreseen.event.size == event.size;
  return (right || !fits) && move_to(size - alike);
}

std::size_t HistoryEncoder::match_length(std::uint64_t number, const Event* events,
                                         std::size_t left) const noexcept {
  const std::size_t most =
      std::min({left, kMatchLimit, static_cast<std::size_t>(history_.size() - number)});
  std::size_t length = 0;
  while (length < most && history_.equals(number + length, events[length])) ++length;
  return length;
}

void HistoryEncoder::jump_to(std::uint64_t number) {
  instructions_.begin(Operation::kJump, 0);
  instructions_.put_varint(history_.size() - number);
  has_source_ = true;
  source_ = number;
}

void HistoryEncoder::append(const Event& event, const History::Entry& entry) {
  history_.append(event, entry, put_time(units_.of(event.time), history_.guess(source_)));
  ++source_;
}

void HistoryEncoder::tell(Operation operation, const Event& event) {
  History::Entry entry{history_.last_told(event.kind), 0, 0};
  entry.event.kind = event.kind;
  put_fields(operation, event, entry);
  history_.tell(event);
  put_time_alone(units_.of(event.time));
  if (operation == Operation::kAside) return;
  const TimeGuess guess = TimeGuess::first(last_time_ - last_history_time_);
  last_history_time_ = last_time_;
  history_.append(event, entry, guess);
  if (has_source_) has_source_ = history_.reaches(history_.size() - source_);
}

void HistoryEncoder::put_fields(Operation operation, const Event& event, History::Entry& entry) {
  const Event& foreseen = entry.event;
  Event sized = foreseen;
  sized.size = event.size;
  const auto differ = [](auto a, auto b, unsigned bit) { return a != b ? bit : 0U; };
  const unsigned more = differ(event.thread, foreseen.thread, kToldThread) |
                        differ(event.site, foreseen.site, kToldSite) |
                        differ(event.flags, foreseen.flags, kToldFlags) |
                        differ(event.device, foreseen.device, kToldDevice);
  const unsigned told = differ(event.address, foreseen.address, kToldAddress) |
                        differ(event.size, foreseen.size, kToldSize) |
                        differ(event.extra, history_.foreseen_extra(sized), kToldExtra) |
                        differ(event.stream, foreseen.stream, kToldStream) |
                        differ(more, 0U, kToldMore);
  // The tables may lack the latest events when an event is put aside; it needs no references.
  const bool refers = operation != Operation::kAside;
  instructions_.begin(operation, told);
  if (operation != Operation::kEdit) {
    instructions_.put_varint(static_cast<std::uint16_t>(event.kind));
  }
  if (more != 0) instructions_.put_byte(more);
  if ((told & kToldAddress) != 0) {
    entry.address_reference = refers ? lookup_.address_reference(history_, event) : 0;
    instructions_.put_place(entry.address_reference, event.address - foreseen.address,
                            kAddressUnit);
  }
  if ((told & kToldSize) != 0) {
    entry.size_reference = refers ? lookup_.size_reference(history_, event) : 0;
    instructions_.put_place(entry.size_reference, event.size - foreseen.size, 1);
  }
  if ((told & kToldExtra) != 0) {
    instructions_.put_extra(event.extra, history_.near_extra(sized), foreseen.extra);
  }
  const auto put = [&](bool is_told, auto value, auto base) {
    if (!is_told) return;
    const auto difference = static_cast<std::uint64_t>(value) - static_cast<std::uint64_t>(base);
    instructions_.put_varint(zigzag(difference));
  };
  put((told & kToldStream) != 0, event.stream, foreseen.stream);
  put((more & kToldThread) != 0, event.thread, foreseen.thread);
  put((more & kToldSite) != 0, event.site, foreseen.site);
  put((more & kToldFlags) != 0, event.flags, foreseen.flags);
  put((more & kToldDevice) != 0, event.device, foreseen.device);
}

TimeGuess HistoryEncoder::put_time(std::uint64_t time, TimeGuess guess) {
  const std::uint64_t error = time - (last_history_time_ + guess.gap);
  times_.put_rice(zigzag(error), guess.rice_bits());
  last_time_ = time;
  last_history_time_ = time;
  return guess.after(error);
}

void HistoryEncoder::put_time_alone(std::uint64_t time) {
  const std::uint64_t error = time - last_time_;
  times_.put_rice(zigzag(error), alone_.rice_bits());
  alone_ = {0, alone_.after(error).spread};
  last_time_ = time;
}

}  // namespace gpumemtrace
