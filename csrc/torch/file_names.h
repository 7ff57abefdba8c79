// What a confidential trace keeps of the file of a call site; gpumemtrace/confidential.py has the
// same rules for traces that there are already.
#pragma once

#include <string>
#include <string_view>

namespace gpumemtrace::hook {

// Behind site-packages all, else the name; with as much before it as tells that the file is
// PyTorch's, or ours.
std::string without_folders(std::string_view file);

}  // namespace gpumemtrace::hook
