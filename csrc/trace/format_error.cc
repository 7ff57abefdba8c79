#include "trace/format_error.h"

namespace gpumemtrace {

FormatError::FormatError(FormatErrorKind kind, std::uint64_t offset, const std::string& message)
    : std::runtime_error(message), kind_(kind), offset_(offset) {}

// Here, so that the type is the same one on both sides of the shared library.
FormatError::~FormatError() = default;

}  // namespace gpumemtrace
