#include "compute/segments.h"

#include <algorithm>
#include <utility>

namespace gpumemtrace::compute {
namespace {

using Block = SegmentBlocks::Block;
using State = SegmentBlocks::State;
constexpr std::uint32_t kNone = SegmentBlocks::kNone;

// PyTorch's kMinBlockSize and kSmallSize.
constexpr std::uint64_t kRounding = 512;
constexpr std::uint64_t kSmallRequest = std::uint64_t{1} << 20;

constexpr std::uint64_t rounded(std::uint64_t size) noexcept {
  return (size + kRounding - 1) / kRounding * kRounding;
}

constexpr std::int64_t as_signed(std::uint64_t bytes) noexcept {
  return static_cast<std::int64_t>(bytes);
}

}  // namespace

void SegmentReplay::feed(const Columns& records, const FreeLines* out) {
  for (std::size_t i = 0; i < records.count; ++i) {
    std::int16_t number = records.device[i];
    switch (records.kind_at(i)) {
      case Kind::kAlloc:
        if (number >= 0) alloc(number, records, i);
        ++allocs_;
        break;
      case Kind::kFree:
        number = free(records, i);
        break;
      case Kind::kStats:
        if (number >= 0) stats(number, records, i);
        break;
      case Kind::kSegmentAlloc:
      case Kind::kSegmentFree:
      case Kind::kSegmentMap:
      case Kind::kSegmentUnmap:
        if (number >= 0) segment(number, records, i);
        break;
      case Kind::kSegmentPool:
        if (number >= 0) segment_pool(number, records, i);
        break;
      case Kind::kRecordStream: {
        const std::uint32_t b = blocks_.find(records.address[i], number);
        if (b == kNone || blocks_.block(b).state != State::kLive) break;
        Block& block = blocks_.block(b);
        // Of no use on the stream that it comes from: PyTorch ignores it.
        const auto& group = blocks_.group_of(blocks_.segment(block.segment));
        if (group.stream == records.stream[i]) break;
        block.is_shared = true;
        block.other_stream = records.stream[i];
        break;
      }
      case Kind::kEmptyCache:
      case Kind::kRetry:
        for (auto& [of, state] : devices_) {
          if (number < 0 || number == of) state.is_flushed = true;
        }
        break;
      case Kind::kPoolBegin:
        if (number >= 0) {
          const PoolId pool{records.address[i], static_cast<std::uint64_t>(records.size[i])};
          device(number).open_pools.push_back({pool, records.thread[i]});
        }
        break;
      case Kind::kPoolEnd:
        if (number >= 0) {
          const PoolId pool{records.address[i], static_cast<std::uint64_t>(records.size[i])};
          auto& open = device(number).open_pools;
          const auto last = std::find_if(open.rbegin(), open.rend(),
                                         [&](const auto& entry) { return entry.pool == pool; });
          if (last != open.rend()) open.erase(std::next(last).base());
        }
        break;
      case Kind::kAllocFailed:
        if (number >= 0) device(number).is_growing = false;
        break;
      case Kind::kGap:
        gap(number);
        break;
      default:
        break;
    }
    if (out == nullptr) continue;
    out->device[i] = number < 0 ? std::int16_t{-1} : number;
    if (number < 0) {
      out->reserved[i] = out->active[i] = 0;
      for (std::int64_t* line : out->free) line[i] = 0;
      out->known[i] = 0;
      continue;
    }
    const auto& sums = blocks_.totals(number);
    out->reserved[i] = as_signed(sums.reserved);
    out->active[i] = as_signed(sums.live + sums.pending);
    for (std::size_t cause = 0; cause < kFreeCauses; ++cause) {
      out->free[cause][i] = as_signed(sums.free[cause]);
    }
    out->known[i] = is_known(number) ? 1 : 0;
  }
}

bool SegmentReplay::is_known(std::int16_t number) {
  const Device& state = device(number);
  return state.has_segments && !state.in_doubt && !state.is_growing && state.homeless_blocks == 0;
}

SegmentReplay::Device& SegmentReplay::device(std::int16_t number) {
  if (cached_ == nullptr || cached_number_ != number) {
    const auto [entry, is_new] = devices_.try_emplace(number);
    if (is_new) entry->second.in_doubt = lost_before_;
    cached_ = &entry->second;
    cached_number_ = number;
  }
  return *cached_;
}

void SegmentReplay::gap(std::int16_t number) {
  if (number < 0) lost_before_ = true;
  for (auto& [of, state] : devices_) {
    if (number < 0 || number == of) state.in_doubt = true;
  }
}

void SegmentReplay::alloc(std::int16_t number, const Columns& records, std::size_t i) {
  Device& state = device(number);
  const std::uint64_t address = records.address[i];
  auto size = static_cast<std::uint64_t>(records.size[i]);
  if (size >= kTooLarge || address > UINT64_MAX - kTooLarge) {
    state.in_doubt = true;
    return;
  }
  state.is_growing = false;
  ask(number, records.stream[i], size);
  // Memory in use is not handed out twice: what was there went without our seeing it. A block that
  // waited for another stream has been taken back.
  if (state.homeless_blocks != 0) end_homeless(number, address);
  const std::uint32_t old = blocks_.find(address, number);
  if (old != kNone && blocks_.block(old).state != State::kFree) {
    if (blocks_.block(old).state == State::kLive) state.in_doubt = true;
    end_block(old);
  }
  if (!place(number, address, size, records.extra[i], allocs_)) {
    add_homeless(number, address, {size, records.extra[i], allocs_});
  }
}

void SegmentReplay::add_homeless(std::int16_t number, std::uint64_t address,
                                 const Homeless& block) {
  Device& state = device(number);
  homeless_.insert(address, number, block);
  ++state.homeless_blocks;
  state.homeless_bytes += rounded(block.size);
}

bool SegmentReplay::end_homeless(std::int16_t number, std::uint64_t address, std::int16_t* of) {
  BlockTable<Homeless>::Slot gone;
  if (!homeless_.erase(address, number, &gone)) return false;
  Device& state = device(gone.device);
  --state.homeless_blocks;
  state.homeless_bytes -= rounded(gone.value.size);
  if (of != nullptr) *of = gone.device;
  return true;
}

// Where more memory is known now; returns whether a block found its place.
bool SegmentReplay::house(std::int16_t number) {
  if (device(number).homeless_blocks == 0) return false;
  bool has_placed = false;
  std::vector<BlockTable<Homeless>::Slot> waiting;
  homeless_.for_each([&](const auto& slot) {
    if (slot.device == number) waiting.push_back(slot);
  });
  for (const auto& slot : waiting) {
    end_homeless(number, slot.address);
    if (place(number, slot.address, slot.value.size, slot.value.counter, slot.value.alloc)) {
      has_placed = true;
    } else {
      add_homeless(number, slot.address, slot.value);
    }
  }
  return has_placed;
}

bool SegmentReplay::place(std::int16_t number, std::uint64_t address, std::uint64_t size,
                          std::uint64_t counter, std::int64_t alloc) {
  const std::uint32_t b = blocks_.free_block_at(number, address);
  if (b == kNone) return false;
  const std::uint32_t holder = blocks_.block(b).segment;
  const auto& segment = blocks_.segment(holder);
  const bool is_small = rounded(size) <= kSmallRequest;
  if (!segment.is_size_class_told && blocks_.group_of(segment).is_small != is_small) {
    auto group = blocks_.group_of(segment);
    group.is_small = is_small;
    blocks_.regroup(holder, group);
  }
  const std::uint64_t free = blocks_.block(b).size;
  const std::uint64_t taken = fit(segment, free, size, counter, number);
  if (taken > free || taken == 0) return false;
  blocks_.take(b, taken, as_signed(size), alloc);
  return true;
}

std::uint64_t SegmentReplay::fit(const SegmentBlocks::Segment& segment, std::uint64_t free,
                                 std::uint64_t size, std::uint64_t counter, std::int16_t number) {
  if (counter != 0 && !device(number).in_doubt) {
    const std::uint64_t grown =
        counter - blocks_.totals(number).live - device(number).homeless_bytes;
    if (grown >= size && grown <= free && grown % kRounding == 0) return grown;
  }
  const std::uint64_t block = rounded(size);
  const bool stays_whole = segment.page == 0 && !blocks_.group_of(segment).is_small &&
                           block <= free && free - block <= kSmallRequest;
  return stays_whole ? free : block;
}

std::int16_t SegmentReplay::free(const Columns& records, std::size_t i) {
  const std::int16_t told = records.device[i];
  const std::uint32_t b = blocks_.find(records.address[i], told);
  if (b == kNone || blocks_.block(b).state != State::kLive) {
    std::int16_t of_homeless = -1;
    if (end_homeless(told, records.address[i], &of_homeless)) return of_homeless;
    for (auto& [of, state] : devices_) {
      if (told < 0 || told == of) state.in_doubt = true;
    }
    return told;
  }
  const Block& block = blocks_.block(b);
  const std::int16_t number = block.device;
  if (block.is_shared) {
    blocks_.set_pending(b);
    device(number).pending.push_back(b);
  } else {
    blocks_.release(b);
  }
  return number;
}

// Also a pending one: then those of its stream that were freed before it are free too.
void SegmentReplay::end_block(std::uint32_t b) {
  if (blocks_.block(b).state != State::kPending) {
    blocks_.release(b);
    return;
  }
  auto& queue = device(blocks_.block(b).device).pending;
  const std::uint64_t stream = blocks_.block(b).other_stream;
  for (auto it = queue.begin(); it != queue.end();) {
    const std::uint32_t pending = *it;
    if (blocks_.block(pending).other_stream != stream) {
      ++it;
      continue;
    }
    it = queue.erase(it);
    blocks_.release(pending);
    if (pending == b) return;
  }
}

void SegmentReplay::release_pending(std::int16_t number, std::uint64_t bytes) {
  Device& state = device(number);
  // What each stream may have finished, as (bytes, blocks) after each of its blocks.
  struct Prefix {
    std::uint64_t bytes;
    std::size_t count;
  };
  std::map<std::uint64_t, std::vector<Prefix>> prefixes;
  for (const std::uint32_t b : state.pending) {
    auto& of = prefixes[blocks_.block(b).other_stream];
    if (of.empty()) of.push_back({0, 0});
    of.push_back({of.back().bytes + blocks_.block(b).size, of.back().count + 1});
  }
  const auto release = [&](const std::map<std::uint64_t, std::size_t>& counts) {
    std::map<std::uint64_t, std::size_t> left = counts;
    std::deque<std::uint32_t> kept;
    for (const std::uint32_t b : state.pending) {
      const auto of = left.find(blocks_.block(b).other_stream);
      if (of != left.end() && of->second > 0) {
        --of->second;
        blocks_.release(b);
      } else {
        kept.push_back(b);
      }
    }
    state.pending = std::move(kept);
  };
  std::map<std::uint64_t, std::size_t> whole;
  std::uint64_t sum = 0;
  for (const std::uint32_t b : state.pending) {
    if (sum == bytes) break;
    sum += blocks_.block(b).size;
    ++whole[blocks_.block(b).other_stream];
  }
  if (sum == bytes) {
    release(whole);
    return;
  }
  for (const auto& [stream, of] : prefixes) {
    for (const Prefix& mine : of) {
      if (mine.bytes == bytes) {
        release({{stream, mine.count}});
        return;
      }
      for (const auto& [other, others] : prefixes) {
        if (other <= stream || mine.bytes > bytes) continue;
        for (const Prefix& its : others) {
          if (mine.bytes + its.bytes != bytes) continue;
          release({{stream, mine.count}, {other, its.count}});
          return;
        }
      }
    }
  }
}

void SegmentReplay::ask(std::int16_t number, std::uint64_t stream, std::uint64_t size) {
  Device& state = device(number);
  auto& asked = state.asked;
  if (asked.empty() || asked[state.last_asked].stream != stream) {
    const auto of = std::find_if(asked.begin(), asked.end(),
                                 [&](const auto& entry) { return entry.stream == stream; });
    state.last_asked = static_cast<std::size_t>(of - asked.begin());
    if (of == asked.end()) asked.push_back({stream, 0});
    if (asked.size() == 1) blocks_.set_main_stream(number, stream);
  }
  asked[state.last_asked].bytes += size;
  if (state.last_asked != state.main && asked[state.last_asked].bytes > asked[state.main].bytes) {
    state.main = state.last_asked;
    blocks_.set_main_stream(number, stream);
  }
}

void SegmentReplay::stats(std::int16_t number, const Columns& records, std::size_t i) {
  Device& state = device(number);
  auto& sums = blocks_.totals(number);
  const std::uint64_t allocated = records.address[i];
  const std::uint64_t active = records.stream[i];
  const std::uint64_t reserved = records.extra[i];
  const std::uint64_t waits = active - allocated;
  if (waits < sums.pending) release_pending(number, sums.pending - waits);
  if (state.is_flushed && reserved < sums.reserved) infer_flush(number, reserved);
  state.is_flushed = state.is_growing = false;
  state.in_doubt = sums.live + state.homeless_bytes != allocated || sums.pending != waits ||
                   sums.reserved != reserved;
}

}  // namespace gpumemtrace::compute
