#include "regions.h"

#include <map>
#include <mutex>

#include "fork.h"
#include "ranges.h"

namespace simgpu {
namespace {

struct Book {
  std::mutex mutex;
  std::map<uint64_t, Region> regions;
};

Book& book() {
  static Book* const the_book = [] {
    auto* made = new Book;  // leaked: calls come in until the process is gone
    hold_across_fork(made->mutex);
    return made;
  }();
  return *the_book;
}

}  // namespace

void add_region(const Region& region) noexcept {
  Book& b = book();
  const std::lock_guard lock(b.mutex);
  b.regions.insert_or_assign(region.base, region);
}

std::optional<Region> remove_region(uint64_t base, RegionKind kind) noexcept {
  Book& b = book();
  const std::lock_guard lock(b.mutex);
  const auto region = b.regions.find(base);
  if (region == b.regions.end() || region->second.kind != kind) return std::nullopt;
  const Region removed = region->second;
  b.regions.erase(region);
  return removed;
}

std::optional<Region> find_region(const void* address) noexcept {
  Book& b = book();
  const std::lock_guard lock(b.mutex);
  const auto region = containing(b.regions, reinterpret_cast<uintptr_t>(address));
  if (region == b.regions.end()) return std::nullopt;
  return region->second;
}

void set_region_device(uint64_t base, int device) noexcept {
  Book& b = book();
  const std::lock_guard lock(b.mutex);
  if (const auto region = containing(b.regions, base); region != b.regions.end()) {
    region->second.device = device;
  }
}

}  // namespace simgpu
