#include "torch/file_names.h"

#include <algorithm>

namespace gpumemtrace::hook {
namespace {

constexpr std::string_view kCompiled = "torchinductor_";  // with the user's name behind it

// Splits the last part off.
std::string_view take_last(std::string_view& path) noexcept {
  const std::size_t slash = path.rfind('/');
  const std::string_view last = path.substr(slash == std::string_view::npos ? 0 : slash + 1);
  path = path.substr(0, slash == std::string_view::npos ? 0 : slash);
  return last;
}

}  // namespace

std::string without_folders(std::string_view file) {
  std::size_t behind_packages = 0;
  for (const std::string_view packages : {"/site-packages/", "/dist-packages/"}) {
    const std::size_t at = file.rfind(packages);
    if (at != std::string_view::npos) {
      behind_packages = std::max(behind_packages, at + packages.size());
    }
  }
  if (behind_packages != 0) return std::string(file.substr(behind_packages));
  for (const std::string_view own : {"/gpumemtrace/capture/", "/gpumemtrace/cli/"}) {
    const std::size_t at = file.rfind(own);
    if (at != std::string_view::npos && file.find('/', at + own.size()) == std::string_view::npos) {
      return std::string(file.substr(at + 1));
    }
  }
  std::string_view folders = file;
  const std::string name(take_last(folders));
  while (!folders.empty()) {
    const std::string_view folder = take_last(folders);
    if (folder == "torch") return "torch/" + name;
    if (folder.substr(0, kCompiled.size()) == kCompiled) return "torchinductor/" + name;
  }
  return name;
}

}  // namespace gpumemtrace::hook
