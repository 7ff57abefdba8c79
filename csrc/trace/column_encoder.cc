#include "trace/column_encoder.h"

#include <algorithm>
#include <cassert>

#include "trace/format.h"
#include "trace/varint.h"

namespace gpumemtrace {
namespace {

constexpr std::size_t kSlotBits = 13;  // twice kMaxDictionarySize: probes stay short
static_assert((std::size_t{1} << kSlotBits) >= 2 * kMaxDictionarySize);

constexpr std::size_t slot_of(std::uint64_t value) noexcept {
  return static_cast<std::size_t>((value * 0x9E3779B97F4A7C15ULL) >> (64 - kSlotBits));
}

std::size_t end_of_run(const std::uint64_t* values, std::size_t count, std::size_t i) noexcept {
  const std::uint64_t value = values[i];
  while (++i < count && values[i] == value) {
  }
  return i;
}

struct Sizes {
  std::size_t runs = 0;
  std::size_t deltas = 0;
};

std::size_t measure_runs(const std::uint64_t* values, std::size_t count) noexcept {
  std::size_t bytes = 0;
  std::uint64_t last = 0;
  for (std::size_t i = 0; i < count;) {
    const std::size_t end = end_of_run(values, count, i);
    bytes += varint_size(zigzag(values[i] - last)) + varint_size(end - i - 1);
    last = values[i];
    i = end;
  }
  return bytes;
}

Sizes measure(const std::uint64_t* values, std::size_t count) noexcept {
  const std::size_t first_bytes = varint_size(zigzag(values[0]));
  Sizes sizes{first_bytes + 1, first_bytes};
  // No less than this for runs: their values, and a byte each for their lengths. Without a branch:
  // where runs end is anybody's guess.
  for (std::size_t i = 1; i < count; ++i) {
    const std::uint64_t difference = values[i] - values[i - 1];
    const std::size_t bytes = varint_size(zigzag(difference));
    sizes.deltas += bytes;
    sizes.runs += static_cast<std::size_t>(difference != 0) * (bytes + 1);
  }
  if (sizes.runs <= sizes.deltas) sizes.runs = measure_runs(values, count);
  return sizes;
}

// Most columns hold one value only: no need to look at it twice.
Sizes measure_constant(std::uint64_t value, std::size_t count) noexcept {
  const std::size_t bytes = varint_size(zigzag(value));
  return {bytes + varint_size(count - 1), bytes + count - 1};
}

}  // namespace

void ColumnEncoder::encode(const std::uint64_t* values, std::size_t count,
                           std::vector<std::uint8_t>& out) {
  const bool constant =
      std::all_of(values, values + count, [&](std::uint64_t v) { return v == values[0]; });
  const Sizes sizes = constant ? measure_constant(values[0], count) : measure(values, count);
  std::size_t best = std::min(sizes.runs, sizes.deltas);
  ColumnEncoding encoding =
      sizes.runs <= sizes.deltas ? ColumnEncoding::kRuns : ColumnEncoding::kDeltas;
  const std::size_t dictionary = build_dictionary(values, count, best);
  if (dictionary < best) {
    best = dictionary;
    encoding = ColumnEncoding::kDictionary;
  }
  const std::size_t start = out.size();
  out.resize(start + 1 + best);
  out[start] = static_cast<std::uint8_t>(encoding);
  std::uint8_t* bytes = out.data() + start + 1;
  switch (encoding) {
    case ColumnEncoding::kRuns:
      put_runs(values, count, bytes);
      break;
    case ColumnEncoding::kDeltas:
      put_deltas(values, count, bytes);
      break;
    case ColumnEncoding::kDictionary:
      put_dictionary(bytes);
      break;
  }
}

std::size_t ColumnEncoder::build_dictionary(const std::uint64_t* values, std::size_t count,
                                            std::size_t limit) {
  constexpr std::size_t kTooLong = SIZE_MAX;
  // At least a bit per value: columns of long runs need not be looked at.
  if (packed_bytes(count, 1) >= limit) return kTooLong;
  if (slots_.empty()) slots_.resize(std::size_t{1} << kSlotBits);
  if (++epoch_ == 0) {
    std::fill(slots_.begin(), slots_.end(), Slot{});
    epoch_ = 1;
  }
  entries_.clear();
  indices_.resize(count);
  std::size_t entry_bytes = 0;
  for (std::size_t i = 0; i < count; ++i) {
    std::size_t at = slot_of(values[i]);
    while (slots_[at].epoch == epoch_ && slots_[at].value != values[i]) {
      at = (at + 1) & (slots_.size() - 1);
    }
    Slot& slot = slots_[at];
    if (slot.epoch != epoch_) {
      if (entries_.size() == kMaxDictionarySize) return kTooLong;
      const std::uint64_t last = entries_.empty() ? 0 : entries_.back();
      entry_bytes += varint_size(zigzag(values[i] - last));
      if (entry_bytes >= limit) return kTooLong;
      slot = {values[i], epoch_, static_cast<std::uint32_t>(entries_.size())};
      entries_.push_back(values[i]);
    }
    indices_[i] = static_cast<std::uint16_t>(slot.index);
  }
  return varint_size(entries_.size()) + entry_bytes +
         packed_bytes(count, dictionary_index_bits(entries_.size()));
}

void ColumnEncoder::put_runs(const std::uint64_t* values, std::size_t count,
                             std::uint8_t* out) const {
  std::uint64_t last = 0;
  for (std::size_t i = 0; i < count;) {
    const std::size_t end = end_of_run(values, count, i);
    out = put_varint(out, zigzag(values[i] - last));
    out = put_varint(out, end - i - 1);
    last = values[i];
    i = end;
  }
}

void ColumnEncoder::put_deltas(const std::uint64_t* values, std::size_t count,
                               std::uint8_t* out) const {
  std::uint64_t last = 0;
  for (std::size_t i = 0; i < count; ++i) {
    out = put_varint(out, zigzag(values[i] - last));
    last = values[i];
  }
}

void ColumnEncoder::put_dictionary(std::uint8_t* out) const {
  out = put_varint(out, entries_.size());
  std::uint64_t last = 0;
  for (const std::uint64_t entry : entries_) {
    out = put_varint(out, zigzag(entry - last));
    last = entry;
  }
  const unsigned bits = dictionary_index_bits(entries_.size());
  std::uint64_t pending = 0;
  unsigned pending_bits = 0;
  for (const std::uint16_t index : indices_) {
    pending |= std::uint64_t{index} << pending_bits;
    pending_bits += bits;
    for (; pending_bits >= 8; pending_bits -= 8) {
      *out++ = static_cast<std::uint8_t>(pending);
      pending >>= 8;
    }
  }
  if (pending_bits != 0) *out = static_cast<std::uint8_t>(pending);
}

}  // namespace gpumemtrace
