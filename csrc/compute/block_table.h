// Live blocks by address: open addressing, linear probing, deletion by backward shift.
//
// Memory is that of the largest live set ever (load factor <= 1/2), not of the trace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace gpumemtrace::compute {

template <class Value>
class BlockTable {
 public:
  struct Slot {
    std::uint64_t address = 0;
    Value value{};
    std::int16_t device = kEmpty;
  };

  BlockTable() : slots_(kInitialSlots) {}

  // The live block at `address`, or nullptr. A device below 0 stands for "not known" and matches
  // any: addresses of different devices do not collide under unified addressing, but in
  // hand-made traces they may. The pointer holds until the next insert or erase.
  Value* find(std::uint64_t address, std::int16_t device) noexcept {
    Slot* slot = find_slot(address, device);
    return slot == nullptr ? nullptr : &slot->value;
  }

  // The block must not be there yet.
  Value& insert(std::uint64_t address, std::int16_t device, const Value& value) {
    if (2 * (size_ + 1) > slots_.size()) grow();
    ++size_;
    return place({address, value, device == kEmpty ? std::int16_t{-1} : device});
  }

  // Takes the block out; false when it is not there.
  bool erase(std::uint64_t address, std::int16_t device, Slot* taken) {
    Slot* slot = find_slot(address, device);
    if (slot == nullptr) return false;
    *taken = *slot;
    --size_;
    close_hole(static_cast<std::size_t>(slot - slots_.data()));
    return true;
  }

  std::size_t size() const noexcept { return size_; }

  // Visits every live block, in no particular order.
  template <class Visit>
  void for_each(Visit visit) const {
    for (const Slot& slot : slots_) {
      if (slot.device != kEmpty) visit(slot);
    }
  }

 private:
  static constexpr std::int16_t kEmpty = INT16_MIN;
  static constexpr std::size_t kInitialSlots = 4096;

  std::size_t home(std::uint64_t address) const noexcept {
    // Fibonacci hashing: the high bits are the well-mixed ones (addresses are multiples of 512).
    return static_cast<std::size_t>((address * 0x9E3779B97F4A7C15u) >> 20) & (slots_.size() - 1);
  }

  Slot* find_slot(std::uint64_t address, std::int16_t device) noexcept {
    const std::size_t mask = slots_.size() - 1;
    for (std::size_t i = home(address); slots_[i].device != kEmpty; i = (i + 1) & mask) {
      if (slots_[i].address == address && (device < 0 || slots_[i].device == device)) {
        return &slots_[i];
      }
    }
    return nullptr;
  }

  Value& place(Slot slot) noexcept {
    const std::size_t mask = slots_.size() - 1;
    std::size_t i = home(slot.address);
    while (slots_[i].device != kEmpty) i = (i + 1) & mask;
    slots_[i] = std::move(slot);
    return slots_[i].value;
  }

  // Moves later entries of the probe run into the hole, so that no tombstones pile up.
  void close_hole(std::size_t hole) noexcept {
    const std::size_t mask = slots_.size() - 1;
    for (std::size_t i = (hole + 1) & mask; slots_[i].device != kEmpty; i = (i + 1) & mask) {
      const std::size_t distance_home = (i - home(slots_[i].address)) & mask;
      const std::size_t distance_hole = (i - hole) & mask;
      if (distance_home >= distance_hole) {
        slots_[hole] = slots_[i];
        hole = i;
      }
    }
    slots_[hole].device = kEmpty;
  }

  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (Slot& slot : old) {
      if (slot.device != kEmpty) place(std::move(slot));
    }
  }

  std::vector<Slot> slots_;  // size is a power of two
  std::size_t size_ = 0;
};

}  // namespace gpumemtrace::compute
