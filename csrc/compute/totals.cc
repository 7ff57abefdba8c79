#include "compute/totals.h"

#include "compute/rounding.h"

namespace gpumemtrace::compute {
namespace {

// The most that PyTorch's allocator leaves in a block without splitting it: 1 MiB, and with
// max_split_size_mb up to its kLargeBuffer.
constexpr std::int64_t kMostUnsplit = std::int64_t{20} << 20;

// Counters come from a file, so they may be anything; wrapping is defined for unsigned only.
constexpr std::int64_t add(std::int64_t a, std::int64_t b) noexcept {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}
constexpr std::int64_t subtract(std::int64_t a, std::int64_t b) noexcept {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b));
}

void give_back(LineBuilder::Device& state, std::uint64_t address, std::int64_t size) {
  if (state.models_blocks && rounded(size) > LargeSegments::kSmallSize) {
    state.segments.give_back(address);
  }
}

}  // namespace

void LineBuilder::feed(const Columns& records, const Lines& out, BlockObserver* observer) {
  observer_ = observer;
  feed_each(records, [&](std::size_t i, std::int16_t number, const Device* state) {
    if (state == nullptr) {
      out.device[i] = -1;
      out.requested[i] = out.allocated[i] = out.active[i] = out.reserved[i] = 0;
      out.uncertain[i] = 0;
    } else {
      out.device[i] = number;
      out.requested[i] = state->requested;
      out.allocated[i] = state->allocated;
      out.active[i] = add(state->allocated, state->pending);
      out.reserved[i] = state->reserved;
      out.uncertain[i] = state->uncertain ? 1 : 0;
    }
  });
}

void LineBuilder::pass(const Columns& records) {
  observer_ = nullptr;
  feed_each(records, [](std::size_t, std::int16_t, const Device*) {});
}

LineBuilder LineBuilder::copy() const {
  LineBuilder copied = *this;
  copied.cached_ = nullptr;
  return copied;
}

template <class Tell>
void LineBuilder::feed_each(const Columns& records, Tell tell) {
  ++feeds_;
  for (std::size_t i = 0; i < records.count; ++i) {
    std::int16_t number = records.device[i];
    const Kind kind = records.kind_at(i);
    Device* state = number < 0 ? nullptr : &device(number);
    if (state != nullptr && kind == Kind::kAlloc) {
      alloc(*state, records, i);
    } else if (kind == Kind::kFree) {
      BlockTable<Block>::Slot taken;
      if (live_.erase(records.address[i], number, &taken)) {
        // The block says which device it was on; the free itself may not know.
        if (state == nullptr) {
          number = taken.device;
          state = &device(number);
        }
        state->requested = subtract(state->requested, taken.value.size);
        state->allocated = subtract(state->allocated, taken.value.allocated);
        state->last_was_alloc = false;
        if (observer_ != nullptr) observer_->died(taken.value.handle, i);
        give_back(*state, records.address[i], taken.value.size);
        if (records.size[i] != 0 && records.size[i] != taken.value.size) {
          report(Anomaly::kSizeMismatch, records, i, taken.value.event);
        }
      } else {
        unknown_free(state, records, i);
      }
      ++events_;
    } else if (state != nullptr && kind == Kind::kStats) {
      stats(*state, records, i);
    } else if (state != nullptr && (kind == Kind::kRetry || kind == Kind::kEmptyCache)) {
      state->cache_flushed = true;
    } else if (state != nullptr && kind == Kind::kSegmentAlloc) {
      state->tells_segments = true;
      if (state->models_blocks) state->segments.add(records.address[i], records.size[i]);
    } else if (state != nullptr && kind == Kind::kSegmentMap) {
      state->models_blocks = false;  // expandable segments: split to the last 512 bytes
      state->segments.clear();
    } else if (kind == Kind::kGap) {
      gap(number);
    } else if (kind == Kind::kTag || kind == Kind::kRecordStream) {
      const Block* block = observer_ == nullptr ? nullptr : live_.find(records.address[i], number);
      if (block != nullptr) observer_->told_of(block->handle, i);
    } else if (kind == Kind::kAlloc) {
      ++events_;  // on no device: nothing to add it to
      ++allocs_;
    }
    if (state != nullptr) state->fed = feeds_;
    tell(i, number, state);
  }
}

// Its alloc was lost, or came before the trace: then no harm is done to the file's credit.
void LineBuilder::unknown_free(Device* state, const Columns& records, std::size_t i) {
  const bool is_explained =
      gap_before_ || (state != nullptr && (state->gaps != 0 || state->in_use_before));
  if (is_explained) {
    ++unseen_allocs_;
  } else {
    report(Anomaly::kUnknownFree, records, i, -1);
  }
  if (state != nullptr) state->uncertain = true;
}

LineBuilder::Device& LineBuilder::device(std::int16_t number) {
  if (cached_ == nullptr || cached_number_ != number) {
    const auto [entry, is_new] = devices_.try_emplace(number);
    if (is_new) entry->second.uncertain = gap_before_;
    cached_ = &entry->second;
    cached_number_ = number;
  }
  return *cached_;
}

void LineBuilder::alloc(Device& state, const Columns& records, std::size_t i) {
  const std::uint64_t address = records.address[i];
  const std::int64_t size = records.size[i];
  state.has_events = true;
  BlockTable<Block>::Slot old;
  if (live_.erase(address, records.device[i], &old)) {
    // Memory in use is not handed out twice: the old block went without our seeing its free.
    if (old.value.gaps == state.gaps) report(Anomaly::kDoubleAlloc, records, i, old.value.event);
    if (observer_ != nullptr) observer_->died(old.value.handle, i);
    give_back(state, address, old.value.size);
    // Counters read since the gap no longer hold a block that was lost in it.
    if (old.value.gaps >= state.healed_gaps) {
      state.requested = subtract(state.requested, old.value.size);
      state.allocated = subtract(state.allocated, old.value.allocated);
    }
  }
  std::int64_t block = size == 0 ? 0 : rounded(size);
  const bool is_large = block > LargeSegments::kSmallSize;
  if (records.extra[i] != 0) {
    if (is_large && state.models_blocks) state.segments.take(address, block);
    const auto counter = static_cast<std::int64_t>(records.extra[i]);
    const std::int64_t grown = subtract(counter, state.allocated);
    // Anything else means that another thread's event came between block and counter, or that the
    // sum before was not sure.
    if (!state.uncertain && grown >= size && subtract(grown, block) <= kMostUnsplit) block = grown;
    state.allocated = counter;
  } else {
    if (is_large && state.models_blocks) block = state.segments.take(address, block);
    state.allocated = add(state.allocated, block);
  }
  state.requested = add(state.requested, size);
  const std::uint32_t handle =
      observer_ == nullptr ? 0 : observer_->born(records, i, allocs_, block);
  live_.insert(address, records.device[i], {size, block, events_, state.gaps, handle});
  state.last_alloc = address;
  state.last_was_alloc = true;
  ++events_;
  ++allocs_;
}

void LineBuilder::stats(Device& state, const Columns& records, std::size_t i) {
  const auto allocated = static_cast<std::int64_t>(records.address[i]);
  const auto cause = records.flags[i];
  // 0: of another recorder, which read them for no other reason.
  const bool is_miss = cause == 0 || cause == static_cast<std::uint32_t>(StatsCause::kMiss);
  if (is_miss && state.last_was_alloc && state.models_blocks && !state.tells_segments &&
      !state.uncertain) {
    miss(state, records, i);
  }
  if (!state.has_events) state.in_use_before = allocated != 0;
  state.requested = records.size[i];
  state.allocated = allocated;
  state.pending = subtract(static_cast<std::int64_t>(records.stream[i]), allocated);
  state.reserved = static_cast<std::int64_t>(records.extra[i]);
  state.has_stats = true;
  if (cause != static_cast<std::uint32_t>(StatsCause::kAgedUnsure)) {
    state.uncertain = false;
    state.healed_gaps = state.gaps;
  }
  state.last_was_alloc = false;
  state.cache_flushed = false;
}

// The alloc before `records[i]`, a kStats, found no cached block; of a recorder that doesn't tell
// segments.
void LineBuilder::miss(Device& state, const Columns& records, std::size_t i) {
  Block* block = live_.find(state.last_alloc, records.device[i]);
  if (block == nullptr || rounded(block->size) <= LargeSegments::kSmallSize) return;
  size_missed(state, records, i, *block);
  if (observer_ != nullptr) observer_->resized(block->handle, block->allocated);
}

void LineBuilder::size_missed(Device& state, const Columns& records, std::size_t i, Block& block) {
  // The counter's growth is the block, unless an earlier one was counted wrong.
  const auto counter = static_cast<std::int64_t>(records.address[i]);
  const std::int64_t grown = add(subtract(counter, state.allocated), block.allocated);
  const auto segment = subtract(static_cast<std::int64_t>(records.extra[i]), state.reserved);
  if (state.cache_flushed || segment < block.size) {
    state.segments.forget_empty();
    if (grown >= block.size && subtract(grown, rounded(block.size)) <= kMostUnsplit) {
      block.allocated = grown;
    }
    return;
  }
  state.segments.add(state.last_alloc, segment);
  block.allocated = state.segments.take(state.last_alloc, rounded(block.size));
  if (grown == rounded(block.size) && grown != block.allocated) {
    // Split after all: expandable segments split to the last 512 bytes, so rounding is exact.
    block.allocated = grown;
    state.models_blocks = false;
    state.segments.clear();
  }
}

void LineBuilder::gap(std::int16_t number) {
  if (number < 0) gap_before_ = true;
  for (auto& [device_number, state] : devices_) {
    if (number >= 0 && number != device_number) continue;
    state.uncertain = true;
    ++state.gaps;
    state.last_was_alloc = false;
  }
}

void LineBuilder::report(Anomaly::Type type, const Columns& records, std::size_t i,
                         std::int64_t other) {
  if (counts_[type]++ < static_cast<std::int64_t>(kKeptAnomalies)) {
    anomalies_.push_back({type, records.device[i], records.address[i], events_, other});
  }
}

}  // namespace gpumemtrace::compute
