#include "capture/ring.h"

#include <sys/mman.h>
#include <time.h>

#include <cerrno>
#include <new>

namespace gpumemtrace::capture {
namespace {

constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;
// Threads that may stand between check and reservation at one time before positions are abandoned.
constexpr std::int64_t kUsualMargin = 1024;
constexpr long kLookAgainNs = 50'000;

void pause_cpu() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// `bytes` rounded up to whole huge pages and aligned to them when it holds at least one.
void* map_memory(std::size_t bytes, std::size_t& mapped_bytes) {
  const std::size_t alignment = bytes >= kHugePageBytes ? kHugePageBytes : 4096;
  mapped_bytes = (bytes + alignment - 1) / alignment * alignment;
  void* wide = mmap(nullptr, mapped_bytes + alignment, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (wide == MAP_FAILED) throw std::bad_alloc();
  const auto start = reinterpret_cast<std::uintptr_t>(wide);
  const std::uintptr_t aligned = (start + alignment - 1) / alignment * alignment;
  if (aligned > start) munmap(wide, aligned - start);
  const std::size_t behind = alignment - (aligned - start);
  if (behind > 0) munmap(reinterpret_cast<void*>(aligned + mapped_bytes), behind);
  auto* memory = reinterpret_cast<void*>(aligned);
  // Both are improvements, not needs: an old kernel may refuse them.
  madvise(memory, mapped_bytes, MADV_HUGEPAGE);
  madvise(memory, mapped_bytes, MADV_WIPEONFORK);
  return memory;
}

}  // namespace

void Loss::add(const Loss& later) noexcept {
  events += later.events;
  alloc_bytes += later.alloc_bytes;
  frees += later.frees;
  if (first_ticks == 0) first_ticks = later.first_ticks;
  last_ticks = std::max(last_ticks, later.last_ticks);
}

Event gap_event(const Loss& loss, std::int64_t lasted_ns) noexcept {
  Event event{};
  event.kind = Kind::kGap;
  event.device = -1;
  event.address = loss.events;
  event.size = loss.alloc_bytes;
  event.stream = loss.frees;
  event.extra = static_cast<std::uint64_t>(std::max<std::int64_t>(lasted_ns, 0));
  return event;
}

void Stalls::add(const Stalls& later) noexcept {
  count += later.count;
  total_ns += later.total_ns;
  longest_ns = std::max(longest_ns, later.longest_ns);
}

Ring::Ring(const RingOptions& options)
    : head_(options.start_position),
      seen_tail_(options.start_position),
      mask_(options.capacity - 1),
      tail_(options.start_position) {
  const auto capacity = static_cast<std::int64_t>(options.capacity);
  const std::int64_t margin = options.margin.value_or(std::min(kUsualMargin, capacity / 4));
  limit_ = static_cast<std::uint64_t>(std::max(capacity - margin, std::int64_t{1}));
  void* const memory = options.memory != nullptr
                           ? options.memory
                           : map_memory(memory_bytes(options.capacity), mapped_bytes_);
  slots_ = static_cast<Slot*>(memory);
  extras_ = new (slots_ + options.capacity) RingExtras{};
  // Each slot as its previous lap would have left it; this also touches every page.
  for (std::size_t i = 0; i < options.capacity; ++i) {
    const std::uint64_t position = options.start_position + i;
    Slot* slot = new (&slots_[position & mask_]) Slot{};
    slot->published.store(position + 1 - options.capacity, std::memory_order_relaxed);
  }
}

Ring::~Ring() {
  if (mapped_bytes_ != 0) munmap(slots_, mapped_bytes_);
}

bool Ring::refresh_finds_room() noexcept {
  const std::uint64_t tail = tail_.load(std::memory_order_acquire);
  seen_tail_.store(tail, std::memory_order_release);
  const std::uint64_t head = head_.load(std::memory_order_relaxed);
  return static_cast<std::int64_t>(head - tail) < static_cast<std::int64_t>(limit_);
}

// Sleeps rather than spins: the drain may want this core. That nobody has read since another push
// waited in vain means that the drain is stuck, behind a disk say; then waits would add up.
bool Ring::waiting_finds_room() noexcept {
  const std::uint64_t patience_ns = patience_ns_.load(std::memory_order_relaxed);
  const std::uint64_t tail = tail_.load(std::memory_order_relaxed);
  if (patience_ns == 0 || vain_tail_.load(std::memory_order_relaxed) == tail + 1) return false;
  const int callers_errno = errno;
  const std::uint64_t begin_ns = monotonic_ns();
  std::uint64_t waited_ns = 0;
  bool found = false;
  while (!found && waited_ns < patience_ns) {
    const timespec moment{0, kLookAgainNs};
    nanosleep(&moment, nullptr);
    found = refresh_finds_room();
    waited_ns = monotonic_ns() - begin_ns;
  }
  errno = callers_errno;
  if (!found) {
    vain_tail_.store(tail_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  stalls_.fetch_add(1, std::memory_order_relaxed);
  stalled_ns_.fetch_add(waited_ns, std::memory_order_relaxed);
  std::uint64_t longest_ns = longest_stall_ns_.load(std::memory_order_relaxed);
  while (longest_ns < waited_ns && !longest_stall_ns_.compare_exchange_weak(
                                       longest_ns, waited_ns, std::memory_order_relaxed)) {
  }
  return found;
}

Stalls Ring::take_stalls() noexcept {
  if (stalls_.load(std::memory_order_relaxed) == 0) return {};
  return {stalls_.exchange(0, std::memory_order_relaxed),
          stalled_ns_.exchange(0, std::memory_order_relaxed),
          longest_stall_ns_.exchange(0, std::memory_order_relaxed)};
}

bool Ring::position_is_free(std::uint64_t position) noexcept {
  const std::uint64_t tail = tail_.load(std::memory_order_acquire);
  return static_cast<std::int64_t>(position - tail) <= static_cast<std::int64_t>(mask_);
}

void Ring::abandon(std::uint64_t position) noexcept {
  auto& entry = extras_->abandoned[position % kAbandonedSlots];
  std::uint64_t empty = 0;
  // Taken only if kAbandonedSlots more threads than the margin stand in push at one time: then,
  // and only then, a producer waits for the consumer.
  while (!entry.compare_exchange_weak(empty, abandoned_key(position), std::memory_order_relaxed)) {
    empty = 0;
    pause_cpu();
  }
}

void Ring::count_loss(Kind kind, std::uint64_t size, std::int16_t device) noexcept {
  const std::uint64_t now = ticks();
  std::uint64_t unset = 0;
  extras_->first_loss_ticks.compare_exchange_strong(unset, now, std::memory_order_relaxed);
  extras_->last_loss_ticks.store(now, std::memory_order_relaxed);
  if (kind == Kind::kAlloc) {
    extras_->lost_alloc_bytes.fetch_add(size, std::memory_order_relaxed);
  } else if (kind == Kind::kFree) {
    extras_->lost_frees.fetch_add(1, std::memory_order_relaxed);
  }
  resync_.fetch_or(device_bit(device), std::memory_order_relaxed);
  extras_->lost_events.fetch_add(1, std::memory_order_release);
}

Loss Ring::take_loss() noexcept {
  Loss loss;
  if (extras_->lost_events.load(std::memory_order_relaxed) == 0) return loss;
  loss.events = extras_->lost_events.exchange(0, std::memory_order_acquire);
  loss.alloc_bytes = extras_->lost_alloc_bytes.exchange(0, std::memory_order_relaxed);
  loss.frees = extras_->lost_frees.exchange(0, std::memory_order_relaxed);
  loss.first_ticks = extras_->first_loss_ticks.exchange(0, std::memory_order_relaxed);
  loss.last_ticks = extras_->last_loss_ticks.exchange(0, std::memory_order_relaxed);
  return loss;
}

}  // namespace gpumemtrace::capture
