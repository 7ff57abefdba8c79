#include "trace/column_decoder.h"

#include <algorithm>
#include <cstring>

#include "trace/varint.h"

namespace gpumemtrace {

void ColumnDecoder::decode(ByteReader& in, std::size_t count, std::uint64_t* values) {
  const auto encoding = in.load<std::uint8_t>("column");
  switch (static_cast<ColumnEncoding>(encoding)) {
    case ColumnEncoding::kRuns:
      return get_runs(in, count, values);
    case ColumnEncoding::kDeltas:
      return get_deltas(in, count, values);
    case ColumnEncoding::kDictionary:
      return get_dictionary(in, count, values);
  }
  in.fail("column", "is stored in a way that this version does not know");
}

void ColumnDecoder::get_runs(ByteReader& in, std::size_t count, std::uint64_t* values) const {
  std::uint64_t last = 0;
  for (std::size_t i = 0; i < count;) {
    last += unzigzag(in.varint("run"));
    const std::uint64_t more = in.varint("run length");
    if (more >= count - i) in.fail("run", "is longer than the column");
    std::fill_n(values + i, more + 1, last);
    i += more + 1;
  }
}

void ColumnDecoder::get_deltas(ByteReader& in, std::size_t count, std::uint64_t* values) const {
  std::uint64_t last = 0;
  for (std::size_t i = 0; i < count; ++i) {
    last += unzigzag(in.varint("difference"));
    values[i] = last;
  }
}

void ColumnDecoder::get_dictionary(ByteReader& in, std::size_t count, std::uint64_t* values) {
  const std::uint64_t size = in.varint("dictionary size");
  if (size < 1 || size > kMaxDictionarySize) in.fail("dictionary", "has an impossible size");
  get_deltas(in, static_cast<std::size_t>(size), entries_);

  const unsigned bits = dictionary_index_bits(static_cast<std::size_t>(size));
  const std::uint32_t mask = (std::uint32_t{1} << bits) - 1;  // index <= mask < kMaxDictionarySize
  const std::size_t packed_size = packed_bytes(count, bits);
  const std::uint8_t* packed = in.take(packed_size, "dictionary indices");
  std::uint32_t largest = 0;
  const auto unpack = [&](const std::uint8_t* bytes, std::size_t bit) {
    std::uint32_t word;  // bits + 7 <= 32: an index never reaches beyond it
    std::memcpy(&word, bytes, sizeof word);
    const std::uint32_t index = word >> (bit % 8) & mask;
    largest = std::max(largest, index);
    return entries_[index];
  };
  std::size_t i = 0;
  for (; i < count && i * bits / 8 + sizeof(std::uint32_t) <= packed_size; ++i) {
    values[i] = unpack(packed + i * bits / 8, i * bits);
  }
  for (; i < count; ++i) {  // the last ones: a word would reach past the end
    std::uint8_t tail[sizeof(std::uint32_t)] = {};
    const std::size_t at = i * bits / 8;
    std::copy(packed + at, packed + packed_size, tail);
    values[i] = unpack(tail, i * bits);
  }
  if (largest >= size) in.fail("dictionary index", "points past the dictionary");
}

}  // namespace gpumemtrace
