#include "capture/name_log.h"

#include <algorithm>
#include <cstring>

namespace gpumemtrace::capture {
namespace {

constexpr std::size_t kMostTextBytes = 4096;

}  // namespace

void NameLog::add(NameEntry entry, std::string_view text) noexcept {
  text = text.substr(0, kMostTextBytes);
  entry.text_bytes = static_cast<std::uint16_t>(text.size());
  const std::lock_guard guard(mutex_);
  NamesPage& page = pages_[page_];
  const std::uint32_t used = page.used_bytes.load(std::memory_order_relaxed);
  const std::size_t needed = sizeof entry + text.size();
  if (needed > sizeof page.entries - used) {
    ++page.left_out;
    return;
  }
  std::memcpy(page.entries + used, &entry, sizeof entry);
  std::copy(text.begin(), text.end(), page.entries + used + sizeof entry);
  page.used_bytes.store(used + static_cast<std::uint32_t>(needed), std::memory_order_release);
}

void NameLog::turn() noexcept {
  const std::lock_guard guard(mutex_);
  page_ ^= 1;
  pages_[page_].left_out = 0;
  pages_[page_].used_bytes.store(0, std::memory_order_release);
}

}  // namespace gpumemtrace::capture
