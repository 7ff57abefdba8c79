// Codec 1: the payload of a chunk to columns. The mirror of encoder.h, where the layout is drawn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "trace/byte_reader.h"
#include "trace/column_decoder.h"
#include "trace/kind_groups.h"

namespace gpumemtrace {

// Where decoded events go: arrays of the caller's, one element per event.
struct EventColumns {
  std::int64_t* time_ns;
  std::uint16_t* kind;
  std::uint64_t* address;
  std::uint64_t* size_bytes;
  std::uint64_t* stream;
  std::uint64_t* extra;
  std::uint32_t* thread;
  std::uint32_t* site;
  std::uint32_t* flags;
  std::int16_t* device;

  // The same arrays, `count` elements further on.
  EventColumns from(std::size_t count) const noexcept {
    return {time_ns + count, kind + count,   address + count, size_bytes + count, stream + count,
            extra + count,   thread + count, site + count,    flags + count,      device + count};
  }
};

// Keeps its scratch memory from one chunk to the next. One thread at a time.
class Decoder {
 public:
  // Fills `count` >= 1 elements of each array. Throws FormatError when the payload is not exactly
  // that many events; the arrays then hold anything.
  void decode(ByteReader in, std::size_t count, std::uint64_t time_resolution_ns,
              const EventColumns& out);

 private:
  KindGroups groups_;
  ColumnDecoder column_;
  std::vector<std::uint64_t> values_;
};

}  // namespace gpumemtrace
