#include "trace/history.h"

#include <algorithm>

namespace gpumemtrace {

History::History()
    : gap_(new std::int64_t[kCapacity]),
      kind_(new std::uint16_t[kCapacity]),
      address_(new std::uint64_t[kCapacity]),
      size_bytes_(new std::uint64_t[kCapacity]),
      stream_(new std::uint64_t[kCapacity]),
      extra_(new std::uint64_t[kCapacity]),
      thread_(new std::uint32_t[kCapacity]),
      site_(new std::uint32_t[kCapacity]),
      flags_(new std::uint32_t[kCapacity]),
      device_(new std::int16_t[kCapacity]),
      spread_(new std::uint32_t[kCapacity]),
      address_reference_(new std::uint32_t[kCapacity]),
      size_reference_(new std::uint32_t[kCapacity]),
      allocated_after_(new std::uint64_t[kCapacity]) {}

// What is out of reach is never looked at: it may stay.
void History::reset() noexcept {
  size_ = 0;
  allocated_ = 0;
  told_ = {};
}

bool History::equals(std::uint64_t number, const Event& event) const noexcept {
  const std::size_t at = slot(number);
  if (address_[at] != event.address) return false;  // mostly what tells, and one look at memory
  const std::uint64_t wide =
      (size_bytes_[at] ^ event.size) | (stream_[at] ^ event.stream) | (extra_[at] ^ event.extra);
  const std::uint32_t narrow =
      (thread_[at] ^ event.thread) | (site_[at] ^ event.site) | (flags_[at] ^ event.flags);
  return (wide | narrow) == 0 && device_[at] == event.device &&
         kind_[at] == static_cast<std::uint16_t>(event.kind);
}

Event History::event(std::uint64_t number) const noexcept {
  const std::size_t at = slot(number);
  return {0,           address_[at], size_bytes_[at], stream_[at], extra_[at],
          thread_[at], site_[at],    flags_[at],      device_[at], static_cast<Kind>(kind_[at])};
}

History::Entry History::follow(std::uint64_t number) const noexcept {
  const std::size_t at = slot(number);
  // What is referred to is in reach of the event that refers, hence, as many events on, of the next
  // one; only a reference of 0 means the event itself.
  const std::uint32_t address_reference = address_reference_[at];
  const std::uint32_t size_reference = size_reference_[at];
  const std::size_t address_at = address_reference != 0 ? slot(size_ - address_reference) : at;
  const std::size_t size_at = size_reference != 0 ? slot(size_ - size_reference) : at;
  return {{0, address_[address_at], size_bytes_[size_at], stream_[at], extra_[at], thread_[at],
           site_[at], flags_[at], device_[at], static_cast<Kind>(kind_[at])},
          address_reference,
          size_reference};
}

void History::append(const Entry& entry, TimeGuess guess) noexcept {
  const Event& event = entry.event;
  if (event.kind == Kind::kAlloc) {
    allocated_ = event.extra != 0 ? event.extra : allocated_ + rounded(event.size);
  } else if (event.kind == Kind::kFree && entry.address_reference != 0) {
    allocated_ -= rounded(size_bytes_[slot(size_ - entry.address_reference)]);
  }
  const std::size_t at = slot(size_++);
  gap_[at] = static_cast<std::int64_t>(guess.gap);
  spread_[at] = guess.spread;
  kind_[at] = static_cast<std::uint16_t>(event.kind);
  address_[at] = event.address;
  size_bytes_[at] = event.size;
  stream_[at] = event.stream;
  extra_[at] = event.extra;
  thread_[at] = event.thread;
  site_[at] = event.site;
  flags_[at] = event.flags;
  device_[at] = event.device;
  address_reference_[at] = entry.address_reference;
  size_reference_[at] = entry.size_reference;
  allocated_after_[at] = allocated_;
}

void History::append_copies(std::uint64_t number, std::uint64_t count) noexcept {
  while (count != 0) {
    const std::size_t from = slot(number);
    const std::size_t to = slot(size_);
    const std::size_t piece = std::min({count, kCapacity - from, kCapacity - to});
    copy_piece(kind_, from, to, piece);
    copy_piece(address_, from, to, piece);
    copy_piece(size_bytes_, from, to, piece);
    copy_piece(stream_, from, to, piece);
    copy_piece(extra_, from, to, piece);
    copy_piece(thread_, from, to, piece);
    copy_piece(site_, from, to, piece);
    copy_piece(flags_, from, to, piece);
    copy_piece(device_, from, to, piece);
    copy_piece(address_reference_, from, to, piece);
    copy_piece(size_reference_, from, to, piece);
    copy_piece(allocated_after_, from, to, piece);
    number += piece;
    size_ += piece;
    count -= piece;
  }
  allocated_ = allocated_after_[slot(size_ - 1)];
}

void History::copy_out(std::uint64_t number, std::uint64_t count,
                       const EventColumns& out) const noexcept {
  for (std::uint64_t done = 0; done < count;) {
    const std::size_t from = slot(number + done);
    const std::size_t piece = std::min(count - done, kCapacity - from);
    std::copy_n(kind_.get() + from, piece, out.kind + done);
    std::copy_n(address_.get() + from, piece, out.address + done);
    std::copy_n(size_bytes_.get() + from, piece, out.size_bytes + done);
    std::copy_n(stream_.get() + from, piece, out.stream + done);
    std::copy_n(extra_.get() + from, piece, out.extra + done);
    std::copy_n(thread_.get() + from, piece, out.thread + done);
    std::copy_n(site_.get() + from, piece, out.site + done);
    std::copy_n(flags_.get() + from, piece, out.flags + done);
    std::copy_n(device_.get() + from, piece, out.device + done);
    done += piece;
  }
}

}  // namespace gpumemtrace
