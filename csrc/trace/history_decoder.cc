#include "trace/history_decoder.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "trace/varint.h"

namespace gpumemtrace {
namespace {

// What followed events refer to lies anywhere in the history.
constexpr std::uint64_t kPrefetchedEvents = 8;

// All but the time, as element `i`.
inline void store(const Event& event, const EventColumns& out, std::size_t i) noexcept {
  out.kind[i] = static_cast<std::uint16_t>(event.kind);
  out.address[i] = event.address;
  out.size_bytes[i] = event.size;
  out.stream[i] = event.stream;
  out.extra[i] = event.extra;
  out.thread[i] = event.thread;
  out.site[i] = event.site;
  out.flags[i] = event.flags;
  out.device[i] = event.device;
}

std::uint64_t get_count(ByteReader& in, unsigned argument, std::size_t left) {
  std::uint64_t more = argument;  // than one
  if (argument == kLongCount) {
    more = in.varint("count");
    if (more < left) more += kLongCount;
  }
  if (more >= left) in.fail("run", "is longer than the chunk");
  return more + 1;
}

// `field` and a difference; what comes out must fit.
template <class Field>
void add_difference(ByteReader& in, Field& field) {
  using Unsigned = std::make_unsigned_t<Field>;
  const std::uint64_t value = static_cast<std::uint64_t>(field) + unzigzag(in.varint("field"));
  field = static_cast<Field>(static_cast<Unsigned>(value));
  if (static_cast<std::uint64_t>(field) != value) in.fail("field", "holds too large a value");
}

}  // namespace

void HistoryDecoder::reset() noexcept {
  history_.reset();
  distance_ = 0;
  last_time_ = 0;
  last_history_time_ = 0;
  alone_ = {0, 0};
}

void HistoryDecoder::decode(ByteReader in, std::size_t count, std::uint64_t time_resolution_ns,
                            const EventColumns& out) {
  const std::uint64_t size = in.varint("size of the instructions");
  const std::uint64_t offset = in.offset();
  const std::uint8_t* instructions = in.take(size, "instructions");
  const std::size_t time_bytes = in.remaining();
  const std::uint8_t* times = in.take(time_bytes, "times");
  Cursor cursor{
      {instructions, static_cast<std::size_t>(size), offset}, {times, time_bytes}, out, count};
  ByteReader& from = cursor.instructions;
  while (cursor.left != 0) {
    const auto instruction = from.load<std::uint8_t>("instruction");
    const unsigned argument = instruction >> kOperationBits;
    switch (static_cast<Operation>(instruction & ((1U << kOperationBits) - 1))) {
      case Operation::kCopy:
        copy(cursor, get_count(from, argument, cursor.left));
        break;
      case Operation::kFollow:
        follow(cursor, get_count(from, argument, cursor.left));
        break;
      case Operation::kEdit:
        edit(cursor, argument);
        break;
      case Operation::kJump:
        if (argument != 0) from.fail("jump", "has an argument");
        jump(cursor);
        break;
      case Operation::kAdd:
        add(cursor, argument, false);
        break;
      case Operation::kAside:
        add(cursor, argument, true);
        break;
      default:
        from.fail("instruction", "is not known to this version");
    }
    if (cursor.times.is_past_end()) in.fail("times", "end too early");
  }
  if (from.remaining() != 0) from.fail("instructions", "go on after the last event");
  if (!cursor.times.is_at_end()) in.fail("times", "go on after the last event");
  bool overflow = false;
  for (std::size_t i = 0; i < count; ++i) {
    overflow |= __builtin_mul_overflow(out.time_ns[i], time_resolution_ns, &out.time_ns[i]);
  }
  if (overflow) in.fail("time", "does not fit 64 bits of nanoseconds");
}

// As get_time, for each of the copies; what changes with each stays in registers.
void HistoryDecoder::copy(Cursor& cursor, std::uint64_t count) {
  if (distance_ == 0) cursor.instructions.fail("copy", "has no source");
  BitReader times = cursor.times;
  const EventColumns out = cursor.out;
  std::uint64_t time = last_history_time_;
  std::size_t i = 0;
  history_.append_copies(history_.size() - distance_, count,
                         [&](const Event& event, TimeGuess& guess) {
                           const std::uint64_t error = unzigzag(times.rice(guess.rice_bits()));
                           time += guess.gap + error;
                           guess = guess.after(error);
                           store(event, out, i);
                           out.time_ns[i++] = static_cast<std::int64_t>(time);
                         });
  last_history_time_ = time;
  last_time_ = time;
  cursor.times = times;
  cursor.out = out.from(i);
  cursor.left -= i;
}

void HistoryDecoder::follow(Cursor& cursor, std::uint64_t count) {
  if (distance_ == 0) cursor.instructions.fail("follow", "has no source");
  cursor.left -= count;
  for (; count != 0; --count) {
    const std::uint64_t source = history_.size() - distance_;
    history_.prefetch_referred(source + kPrefetchedEvents, kPrefetchedEvents);
    History::Entry entry = history_.follow(source);
    entry.event.extra = history_.foreseen_extra(entry.event);
    history_.append(entry.event, entry,
                    get_time(cursor.times, history_.guess(source), *cursor.out.time_ns));
    store(entry.event, cursor.out, 0);
    cursor.out = cursor.out.from(1);
  }
}

void HistoryDecoder::edit(Cursor& cursor, unsigned told) {
  ByteReader& in = cursor.instructions;
  if (distance_ == 0) in.fail("edit", "has no source");
  const std::uint64_t source = history_.size() - distance_;
  History::Entry entry = history_.follow(source);
  const unsigned more = (told & kToldMore) != 0 ? in.load<std::uint8_t>("second mask") : 0U;
  get_fields(in, told, more, entry);
  history_.append(entry.event, entry,
                  get_time(cursor.times, history_.guess(source), *cursor.out.time_ns));
  store(entry.event, cursor.out, 0);
  cursor.out = cursor.out.from(1);
  --cursor.left;
}

void HistoryDecoder::jump(Cursor& cursor) {
  const std::uint64_t distance = cursor.instructions.varint("distance");
  if (!history_.reaches(distance)) cursor.instructions.fail("jump", "leads out of the history");
  distance_ = distance;
}

void HistoryDecoder::add(Cursor& cursor, unsigned told, bool aside) {
  ByteReader& in = cursor.instructions;
  const std::uint64_t kind = in.varint("kind");
  if (kind > std::numeric_limits<std::uint16_t>::max()) in.fail("kind", "does not fit its 16 bits");
  History::Entry entry{history_.last_told(static_cast<Kind>(kind)), 0, 0};
  entry.event.kind = static_cast<Kind>(kind);
  const unsigned more = (told & kToldMore) != 0 ? in.load<std::uint8_t>("second mask") : 0U;
  get_fields(in, told, more, entry);
  history_.tell(entry.event);
  store(entry.event, cursor.out, 0);
  get_time_alone(cursor.times, *cursor.out.time_ns);
  if (!aside) {
    const std::uint64_t gap = last_time_ - last_history_time_;
    last_history_time_ = last_time_;
    history_.append(entry.event, entry, TimeGuess::first(gap));
    if (distance_ != 0 && ++distance_ == History::kCapacity) distance_ = 0;
  }
  cursor.out = cursor.out.from(1);
  --cursor.left;
}

void HistoryDecoder::get_fields(ByteReader& in, unsigned told, unsigned more,
                                History::Entry& entry) const {
  if ((more & ~(unsigned{kToldThread} | kToldSite | kToldFlags | kToldDevice)) != 0) {
    in.fail("second mask", "names fields that this version does not know");
  }
  Event& event = entry.event;
  // Returns the reference, 0 = the value was told.
  const auto get_place = [&](std::uint64_t& value, std::uint64_t unit, auto referred) {
    const std::uint64_t code = in.varint("place");
    if (code % 2 != 0) {
      value += unit * unzigzag(code >> 1);
    } else if (code == 0) {
      value += unzigzag(in.varint("difference"));
    } else {
      const std::uint64_t reference = code >> 1;
      if (!history_.reaches(reference)) in.fail("reference", "leads out of the history");
      value = referred(history_.size() - reference);
      return static_cast<std::uint32_t>(reference);
    }
    return std::uint32_t{0};
  };
  if ((told & kToldAddress) != 0) {
    entry.address_reference = get_place(event.address, kAddressUnit, [&](std::uint64_t number) {
      return history_.event(number).address;
    });
  }
  if ((told & kToldSize) != 0) {
    entry.size_reference =
        get_place(event.size, 1, [&](std::uint64_t number) { return history_.event(number).size; });
  }
  if ((told & kToldExtra) != 0) {
    const std::uint64_t code = in.varint("extra");
    if (code == 1) {
      event.extra += unzigzag(in.varint("difference"));
    } else {
      event.extra = code == 0 ? 0 : history_.near_extra(event) + unzigzag(code - 2);
    }
  } else {
    event.extra = history_.foreseen_extra(event);
  }
  if ((told & kToldStream) != 0) add_difference(in, event.stream);
  if ((more & kToldThread) != 0) add_difference(in, event.thread);
  if ((more & kToldSite) != 0) add_difference(in, event.site);
  if ((more & kToldFlags) != 0) add_difference(in, event.flags);
  if ((more & kToldDevice) != 0) add_difference(in, event.device);
}

TimeGuess HistoryDecoder::get_time(BitReader& times, TimeGuess guess, std::int64_t& time) noexcept {
  const std::uint64_t error = unzigzag(times.rice(guess.rice_bits()));
  last_history_time_ += guess.gap + error;
  last_time_ = last_history_time_;
  time = static_cast<std::int64_t>(last_time_);
  return guess.after(error);
}

void HistoryDecoder::get_time_alone(BitReader& times, std::int64_t& time) noexcept {
  const std::uint64_t error = unzigzag(times.rice(alone_.rice_bits()));
  alone_ = {0, alone_.after(error).spread};
  last_time_ += error;
  time = static_cast<std::int64_t>(last_time_);
}

}  // namespace gpumemtrace
