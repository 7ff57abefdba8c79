// What the reader throws when bytes can't be a trace.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "trace/export.h"

namespace gpumemtrace {

enum class FormatErrorKind {
  kNotATrace,     // does not begin like one
  kNewerVersion,  // a major version that this reader would misread
  kCorrupt,       // is one, but these bytes are not what they must be
};

class GPUMEMTRACE_API FormatError final : public std::runtime_error {
 public:
  // `offset`: bytes from the start of the file. The message says what was expected there.
  FormatError(FormatErrorKind kind, std::uint64_t offset, const std::string& message);
  ~FormatError() override;

  FormatErrorKind kind() const noexcept { return kind_; }
  std::uint64_t offset() const noexcept { return offset_; }

 private:
  FormatErrorKind kind_;
  std::uint64_t offset_;
};

}  // namespace gpumemtrace
