// The twins of FileSink: one in memory, and one that fails on purpose.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "trace/sink.h"

namespace gpumemtrace {

// Bytes go to a vector of the test's, which must outlive the sink.
class MemorySink final : public Sink {
 public:
  explicit MemorySink(std::vector<std::uint8_t>& bytes) : bytes_(bytes) {}

  bool write(const void* data, std::size_t size_bytes) noexcept override {
    const auto* begin = static_cast<const std::uint8_t*>(data);
    bytes_.insert(bytes_.end(), begin, begin + size_bytes);
    ++writes;
    return true;
  }
  bool close() noexcept override {
    closed = true;
    return true;
  }

  int writes = 0;
  bool closed = false;

 private:
  std::vector<std::uint8_t>& bytes_;
};

// Takes `capacity_bytes`, then fails every write with `error_number`, as a full disk does.
class FailingSink final : public Sink {
 public:
  FailingSink(std::size_t capacity_bytes, int error_number)
      : room_(capacity_bytes), failure_(error_number) {}

  bool write(const void* /*data*/, std::size_t size_bytes) noexcept override {
    if (size_bytes > room_) {
      room_ = 0;
      return fail(failure_);
    }
    room_ -= size_bytes;
    return true;
  }
  bool close() noexcept override { return error_number() == 0; }

 private:
  std::size_t room_;
  int failure_;
};

}  // namespace gpumemtrace
