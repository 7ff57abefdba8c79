// Decoded records as columns: what every loop of the analysis reads. Nothing is owned.
#pragma once

#include <cstddef>
#include <cstdint>

#include "trace/event.h"

namespace gpumemtrace::compute {

// Meaning per kind: trace/event.h. A loop touches only the columns that it names.
struct Columns {
  std::size_t count = 0;
  const std::uint16_t* kind = nullptr;
  const std::int16_t* device = nullptr;
  const std::uint32_t* thread = nullptr;
  const std::uint32_t* flags = nullptr;
  const std::uint64_t* address = nullptr;
  const std::int64_t* size = nullptr;
  const std::uint64_t* stream = nullptr;
  const std::uint64_t* extra = nullptr;

  Kind kind_at(std::size_t i) const noexcept { return static_cast<Kind>(kind[i]); }
};

}  // namespace gpumemtrace::compute
