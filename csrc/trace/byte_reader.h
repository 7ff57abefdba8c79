// Bytes nobody vouches for, read front to back. take() is the one place where a length out of a
// file meets the length of the file: everything that reads a trace reads through it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "trace/format_error.h"
#include "trace/varint.h"

namespace gpumemtrace {

// Does not own the bytes. Errors are FormatError(kCorrupt) with the offset in the file.
class ByteReader {
 public:
  // `file_offset`: where `data` begins in the file.
  ByteReader(const std::uint8_t* data, std::size_t size_bytes, std::uint64_t file_offset) noexcept
      : begin_(data), at_(data), end_(data + size_bytes), file_offset_(file_offset) {}

  std::size_t remaining() const noexcept { return static_cast<std::size_t>(end_ - at_); }
  std::uint64_t offset() const noexcept {
    return file_offset_ + static_cast<std::uint64_t>(at_ - begin_);
  }

  // The next `size_bytes` bytes. `what` names them in the error.
  const std::uint8_t* take(std::uint64_t size_bytes, const char* what) {
    if (size_bytes > remaining()) fail(what, "ends too early");
    const std::uint8_t* taken = at_;
    at_ += size_bytes;
    return taken;
  }

  template <class T>
  T load(const char* what) {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    std::memcpy(&value, take(sizeof value, what), sizeof value);
    return value;
  }

  std::uint64_t varint(const char* what) {
    std::uint64_t value = 0;
    if (remaining() >= kMaxVarintBytes) {  // common: checked once for all its bytes
      for (unsigned shift = 0; shift < 64; shift += 7) {
        const std::uint8_t byte = *at_++;
        value |= std::uint64_t{byte & 0x7FU} << shift;
        if (byte < 0x80) return shift < 63 || byte <= 1 ? value : overlong(what);
      }
      return overlong(what);
    }
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const std::uint8_t byte = *take(1, what);
      value |= std::uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) return shift < 63 || byte <= 1 ? value : overlong(what);
    }
    return overlong(what);
  }

  [[noreturn]] void fail(const char* what, const char* problem) const {
    throw FormatError(FormatErrorKind::kCorrupt, offset(), std::string(what) + " " + problem);
  }

 private:
  [[noreturn]] std::uint64_t overlong(const char* what) const {
    fail(what, "holds a number of more than 64 bits");
  }

  const std::uint8_t* begin_;
  const std::uint8_t* at_;
  const std::uint8_t* end_;
  std::uint64_t file_offset_;
};

}  // namespace gpumemtrace
