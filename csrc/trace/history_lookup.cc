#include "trace/history_lookup.h"

#include <algorithm>

namespace gpumemtrace {
namespace {

constexpr unsigned kAddressSlotBits = 15;
constexpr unsigned kSizeSlotBits = 12;
constexpr unsigned kContextSlotBits = 16;
constexpr std::uint64_t kMultiplier = 0x9E3779B97F4A7C15ULL;

// Of more events than this the latest are taken in: several steps of most programs.
constexpr std::uint64_t kMostTakenIn = std::uint64_t{1} << 15;

// Sizes up to here don't depend on the batch, as far as can be told from outside.
constexpr std::uint64_t kSmallBytes = std::uint64_t{1} << 20;

constexpr std::size_t slot_of(std::uint64_t value, unsigned bits) noexcept {
  return static_cast<std::size_t>((value * kMultiplier) >> (64 - bits));
}

// A mark of by_context_: the number's low bits, and above them of the context's hash those that did
// not choose the slot. Where nothing repeats, every slot is taken by some other context, and the
// event looked at in vain is seldom in the cache.
constexpr unsigned kNumberBits = 18;
constexpr std::uint32_t kNumberMask = (std::uint32_t{1} << kNumberBits) - 1;

constexpr std::uint32_t context_mark(std::uint64_t context, std::uint64_t number) noexcept {
  const auto rest = static_cast<std::uint32_t>((context * kMultiplier) >> 16);
  return (rest & ~kNumberMask) | (static_cast<std::uint32_t>(number) & kNumberMask);
}

constexpr std::uint64_t context_with(std::uint64_t context, const Event& event) noexcept {
  const std::uint64_t kind = static_cast<std::uint16_t>(event.kind);
  const std::uint64_t hash = (event.address ^ kind << 56 ^ event.size << 20) * kMultiplier;
  return context << 21 ^ hash >> 43;
}

}  // namespace

HistoryLookup::HistoryLookup()
    : by_address_(std::size_t{1} << kAddressSlotBits),
      by_size_(std::size_t{1} << kSizeSlotBits),
      by_context_(std::size_t{1} << kContextSlotBits),
      by_structure_(std::size_t{1} << kContextSlotBits) {}

void HistoryLookup::reset() noexcept {
  for (Table* table : {&by_address_, &by_size_, &by_context_, &by_structure_}) {
    std::fill(table->begin(), table->end(), 0U);
  }
  taken_in_ = 0;
  context_ = 0;
  structure_ = 0;
}

void HistoryLookup::update(const History& history) noexcept {
  const std::uint64_t size = history.size();
  if (size - taken_in_ > kMostTakenIn) taken_in_ = size - kMostTakenIn;
  for (; taken_in_ < size; ++taken_in_) {
    const Event& event = history.event(taken_in_);
    const auto mark = static_cast<std::uint32_t>(taken_in_ + 1);
    context_ = context_with(context_, event);
    structure_ = structure_with(history, event, taken_in_);
    by_context_[slot_of(context_, kContextSlotBits)] = context_mark(context_, taken_in_);
    by_structure_[slot_of(structure_, kContextSlotBits)] = mark;
    by_address_[slot_of(event.address, kAddressSlotBits)] = mark;
    if (event.kind == Kind::kAlloc) by_size_[slot_of(event.size, kSizeSlotBits)] = mark;
  }
}

std::uint32_t HistoryLookup::address_reference(const History& history,
                                               const Event& event) const noexcept {
  return address_distance(history, event.address, history.size());
}

std::uint32_t HistoryLookup::size_reference(const History& history,
                                            const Event& event) const noexcept {
  if (event.kind != Kind::kAlloc) return 0;
  const std::uint32_t ago = distance(by_size_[slot_of(event.size, kSizeSlotBits)], history.size());
  return ago != 0 && history.event(history.size() - ago).size == event.size ? ago : 0;
}

std::uint32_t HistoryLookup::find_same(const History& history, const Event& event) const noexcept {
  const std::uint64_t context = context_with(context_, event);
  const std::uint32_t mark = by_context_[slot_of(context, kContextSlotBits)];
  const std::uint32_t now = context_mark(context, history.size());
  if ((mark ^ now) > kNumberMask) return 0;
  const std::uint32_t ago = (now - mark) & kNumberMask;
  return ago < History::kCapacity && ago <= history.size() ? ago : 0;
}

std::uint32_t HistoryLookup::find_alike(const History& history, const Event& event) const noexcept {
  const std::uint64_t structure = structure_with(history, event, history.size());
  return distance(by_structure_[slot_of(structure, kContextSlotBits)], history.size());
}

// Large sizes are those of a batch and count for nothing; a free is told by the age of its block.
std::uint64_t HistoryLookup::structure_with(const History& history, const Event& event,
                                            std::uint64_t number) const noexcept {
  const std::uint64_t kind = static_cast<std::uint16_t>(event.kind);
  std::uint64_t part = kind << 48 ^ std::uint64_t{event.thread} << 40 ^ event.flags;
  if (event.kind == Kind::kFree) {
    part ^= std::uint64_t{address_distance(history, event.address, number)} << 8;
  } else if (event.size <= kSmallBytes) {
    part ^= event.size << 8;
  }
  return structure_ << 16 ^ (part * kMultiplier) >> 48;
}

std::uint32_t HistoryLookup::address_distance(const History& history, std::uint64_t address,
                                              std::uint64_t number) const noexcept {
  const std::uint32_t ago = distance(by_address_[slot_of(address, kAddressSlotBits)], number);
  return ago != 0 && history.event(number - ago).address == address ? ago : 0;
}

std::uint32_t HistoryLookup::distance(std::uint32_t mark, std::uint64_t number) noexcept {
  const auto ago = static_cast<std::uint32_t>(number) + 1 - mark;
  return mark != 0 && ago < History::kCapacity && ago <= number ? ago : 0;
}

}  // namespace gpumemtrace
