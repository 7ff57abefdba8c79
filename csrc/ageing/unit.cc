#include "ageing/unit.h"

#include <algorithm>

namespace gpumemtrace::ageing {

void UnitReader::feed(const Source& source, const ChunkInfo& chunk) {
  const auto count = static_cast<std::size_t>(chunk.count);
  const std::size_t newer = buffer_.size() - std::max(begin_, older_);
  if (begin_ >= older_) older_bytes_ = 0;
  older_bytes_ += static_cast<double>(newer) * bytes_per_record_;
  buffer_.drop_front(begin_);
  begin_ = 0;
  older_ = seen_ = buffer_.size();
  buffer_.grow(count);
  decoder_->decode(source, chunk, buffer_.rows().events.from(older_));
  bytes_per_record_ = static_cast<double>(chunk.stored_bytes) / static_cast<double>(count);
}

bool UnitReader::take(Unit& unit) {
  const Rows rows = buffer_.rows();
  const std::size_t longest = std::min(rows.count, begin_ + most_records_);
  while (seen_ < longest) {
    if (rows.kind(seen_++) != Kind::kStep) continue;
    end_unit(seen_, unit);
    return true;
  }
  if (seen_ < begin_ + most_records_) return false;
  end_unit(seen_, unit);
  return true;
}

bool UnitReader::take_rest(Unit& unit) {
  if (begin_ == buffer_.size()) return false;
  seen_ = buffer_.size();
  end_unit(seen_, unit);
  unit.is_whole = false;
  return true;
}

// What is true after each of its records, as soon as it is known where it ends.
void UnitReader::end_unit(std::size_t end, Unit& unit) {
  const std::size_t count = end - begin_;
  const std::size_t older = older_ - std::min(begin_, older_);
  rows_ = buffer_.rows().part(begin_, count);
  std::fill_n(rows_.since_alloc, count, 0U);
  const EventColumns& in = rows_.events;
  const compute::Columns columns{.count = count,
                                 .kind = in.kind,
                                 .device = in.device,
                                 .thread = in.thread,
                                 .flags = in.flags,
                                 .address = in.address,
                                 .size = reinterpret_cast<const std::int64_t*>(in.size_bytes),
                                 .stream = in.stream,
                                 .extra = in.extra};
  const auto& lines = rows_.lines;
  lines_.feed(columns, {rows_.of_device, lines[0], lines[1], lines[2], lines[3], rows_.unsure},
              this);
  unit.number = number_++;
  unit.bytes = older == 0 ? 0 : older_bytes_;
  unit.bytes += static_cast<double>(count - std::min(older, count)) * bytes_per_record_;
  unit.rows = rows_;
  unit.has_aged = unit.has_baseline = false;
  for (std::size_t i = 0; i < count; ++i) {
    unit.has_aged |= rows_.kind(i) == Kind::kAged;
    unit.has_baseline |= rows_.kind(i) == Kind::kStats &&
                         in.flags[i] == static_cast<std::uint32_t>(StatsCause::kBaseline);
  }
  unit.is_whole = true;
  begin_ = end;
  first_ += static_cast<std::uint32_t>(count);
}

std::uint32_t UnitReader::born(const compute::Columns& /*records*/, std::size_t i,
                               std::int64_t /*number*/, std::int64_t allocated) {
  rows_.block_bytes[i] = allocated;
  return first_ + static_cast<std::uint32_t>(i);
}

void UnitReader::note(std::uint32_t block, std::size_t i) {
  rows_.since_alloc[i] = first_ + static_cast<std::uint32_t>(i) - block;
}

}  // namespace gpumemtrace::ageing
