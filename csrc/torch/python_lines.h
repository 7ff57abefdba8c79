// The line of an instruction, from a copy of a code object's line table: CPython's own function for
// it wants the GIL and the code object.
#pragma once

#include <cstdint>

#include "capture/sites.h"

namespace gpumemtrace::hook {

// `instruction`: an index in instructions. 0: the table says nothing of it. A capture::CodeText's
// line_of.
int line_of(const capture::CodeText& code, std::uint32_t instruction) noexcept;

}  // namespace gpumemtrace::hook
