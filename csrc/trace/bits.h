// A stream of bits, from the lowest bit of the first byte on, and Rice codes in it.
//
//   Rice code of a number with k low bits   q zeros, a one, the k low bits     q = number >> k < 16
//   and of one for which q would be larger  16 zeros, a one, 6 bits: width - 1, `width` bits
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "trace/byte_reader.h"

namespace gpumemtrace {

inline constexpr unsigned kMaxRiceQuotient = 16;
inline constexpr unsigned kMaxRiceBits = 32;  // k: 16 zeros, a one and k bits fit one look-up

// Collects bits; keeps its memory from one stream to the next. May throw std::bad_alloc.
class BitWriter {
 public:
  // Writes codes one behind the other, its state in registers, into room that is made once.
  class Burst {
   public:
    // At most `most` codes. Between here and finish() the writer must not be used otherwise.
    Burst(BitWriter& writer, std::size_t most)
        : writer_(writer), pending_(writer.pending_), pending_bits_(writer.pending_bits_) {
      writer.make_room(most * kMaxRiceBytes);
      at_ = writer.bytes_.data() + writer.size_;
    }

    void put_rice(std::uint64_t number, unsigned k) noexcept {
      const std::uint64_t quotient = number >> k;
      if (quotient < kMaxRiceQuotient) [[likely]] {
        const auto zeros = static_cast<unsigned>(quotient);
        const std::uint64_t low = number & ((std::uint64_t{1} << k) - 1);
        put((low << 1 | 1) << zeros, zeros + 1 + k);
      } else {
        put_escaped(number);
      }
    }

    // The low `count` <= 56 bits of `value`, which has no others.
    void put(std::uint64_t value, unsigned count) noexcept {
      pending_ |= value << pending_bits_;  // fewer than 8 are pending: 64 hold them all
      pending_bits_ += count;
      std::memcpy(at_, &pending_, sizeof pending_);
      at_ += pending_bits_ / 8;
      // At most 63 are pending, so this is a shift by 56 at most.
      pending_ >>= pending_bits_ & ~7U;
      pending_bits_ %= 8;
    }

    void finish() noexcept {
      writer_.size_ = static_cast<std::size_t>(at_ - writer_.bytes_.data());
      writer_.pending_ = pending_;
      writer_.pending_bits_ = pending_bits_;
    }

   private:
    void put_escaped(std::uint64_t number) noexcept {
      const auto width = static_cast<unsigned>(std::bit_width(number));
      put(std::uint64_t{1} << kMaxRiceQuotient | std::uint64_t{width - 1} << (kMaxRiceQuotient + 1),
          kMaxRiceQuotient + 7);
      put(number & 0xFFFFFFFF, width < 32 ? width : 32);
      if (width > 32) put(number >> 32, width - 32);
    }

    BitWriter& writer_;
    std::uint8_t* at_;
    std::uint64_t pending_;
    unsigned pending_bits_;
  };

  void clear() noexcept {
    size_ = 0;
    pending_ = 0;
    pending_bits_ = 0;
  }

  void put_rice(std::uint64_t number, unsigned k) {
    Burst one(*this, 1);
    one.put_rice(number, k);
    one.finish();
  }

  // Appends what was put, the last byte filled up with zeros, to `out`.
  void finish(std::vector<std::uint8_t>& out) {
    Burst end(*this, 1);
    end.put(0, (8 - pending_bits_ % 8) % 8);
    end.finish();
    out.insert(out.end(), bytes_.data(), bytes_.data() + size_);
  }

 private:
  // Of the longest code, 23 + 64 bits; and of the store of a whole word behind it.
  static constexpr std::size_t kMaxRiceBytes = 11;

  void make_room(std::size_t size_bytes) {
    const std::size_t needed = size_ + size_bytes + sizeof(std::uint64_t);
    if (bytes_.size() < needed) bytes_.resize(std::max(needed, 2 * bytes_.size()));
  }

  std::vector<std::uint8_t> bytes_;
  std::size_t size_ = 0;
  std::uint64_t pending_ = 0;
  unsigned pending_bits_ = 0;
};

// Reads them back. Past the end there are zeros; is_at_end() tells whether that happened.
class BitReader {
 public:
  BitReader(const std::uint8_t* data, std::size_t size_bytes) noexcept
      : at_(data), end_(data + size_bytes), bits_left_(std::uint64_t{size_bytes} * 8) {}

  std::uint64_t rice(unsigned k) noexcept {
    refill();
    const auto zeros = static_cast<unsigned>(std::countr_zero(pending_ | kStop));
    if (zeros < kMaxRiceQuotient) {
      const std::uint64_t low = pending_ >> (zeros + 1) & ((std::uint64_t{1} << k) - 1);
      drop(zeros + 1 + k);
      return std::uint64_t{zeros} << k | low;
    }
    return escaped();
  }

  // Exactly the bytes given were read, but for bits of the last byte, which are zero.
  bool is_at_end() const noexcept {
    return bits_left_ >= used_ && bits_left_ - used_ < 8 && pending_ == 0;
  }
  // More was read than there is.
  bool is_past_end() const noexcept { return used_ > bits_left_; }

 private:
  static constexpr std::uint64_t kStop = std::uint64_t{1} << kMaxRiceQuotient;

  std::uint64_t escaped() noexcept {
    const unsigned width = static_cast<unsigned>(pending_ >> (kMaxRiceQuotient + 1) & 63) + 1;
    drop(kMaxRiceQuotient + 7);
    refill();
    const unsigned low_width = width < 32 ? width : 32;
    std::uint64_t number = pending_ & ((std::uint64_t{1} << low_width) - 1);
    drop(low_width);
    if (width > 32) {
      refill();
      number |= (pending_ & ((std::uint64_t{1} << (width - 32)) - 1)) << 32;
      drop(width - 32);
    }
    return number;
  }

  // At least 56 bits are pending afterwards, zeros behind the last byte.
  void refill() noexcept {
    if (end_ - at_ >= 8) {
      std::uint64_t word;
      std::memcpy(&word, at_, sizeof word);
      pending_ |= word << pending_bits_;
      at_ += (63 - pending_bits_) / 8;
      pending_bits_ |= 56;
      return;
    }
    for (; pending_bits_ <= 56; pending_bits_ += 8) {
      if (at_ != end_) pending_ |= std::uint64_t{*at_++} << pending_bits_;
    }
  }

  void drop(unsigned count) noexcept {
    pending_ >>= count;
    pending_bits_ -= count;
    used_ += count;
  }

  const std::uint8_t* at_;
  const std::uint8_t* end_;
  std::uint64_t bits_left_;
  std::uint64_t used_ = 0;
  std::uint64_t pending_ = 0;
  unsigned pending_bits_ = 0;
};

}  // namespace gpumemtrace
