#include "contents.h"

#include <cstdint>
#include <mutex>

#include "fork.h"
#include "ranges.h"

namespace simgpu {
namespace {

struct Book {
  std::mutex mutex;
  RangeSet known;
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

std::atomic<bool> contents::kernel_ran{true};

void note_write(const void* to, size_t bytes) noexcept {
  Book& b = book();
  const std::lock_guard lock(b.mutex);
  if (contents::kernel_ran.exchange(false, std::memory_order_relaxed)) b.known.clear();
  b.known.add(reinterpret_cast<uintptr_t>(to), bytes);
}

void note_loss(const void* to, size_t bytes) noexcept {
  Book& b = book();
  const std::lock_guard lock(b.mutex);
  b.known.remove(reinterpret_cast<uintptr_t>(to), bytes);
}

bool is_known(const void* from, size_t bytes) noexcept {
  Book& b = book();
  const std::lock_guard lock(b.mutex);
  if (contents::kernel_ran.load(std::memory_order_relaxed)) return false;
  return b.known.contains(reinterpret_cast<uintptr_t>(from), bytes);
}

}  // namespace simgpu
