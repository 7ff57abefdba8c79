// The twin of FileSource: bytes in memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "trace/source.h"

namespace gpumemtrace {

class MemorySource final : public Source {
 public:
  explicit MemorySource(std::vector<std::uint8_t> bytes) : bytes_(std::move(bytes)) {}

  std::uint64_t size_bytes() const noexcept override { return bytes_.size(); }
  std::size_t read(std::uint64_t offset, void* out, std::size_t size_bytes) const override {
    if (offset >= bytes_.size()) return 0;
    const std::size_t got = std::min(size_bytes, bytes_.size() - static_cast<std::size_t>(offset));
    std::memcpy(out, bytes_.data() + offset, got);
    return got;
  }

 private:
  std::vector<std::uint8_t> bytes_;
};

}  // namespace gpumemtrace
