#include "ageing/unit.h"

#include <utility>

namespace gpumemtrace::ageing {

void UnitReader::feed(const Source& source, const ChunkInfo& chunk) {
  const auto count = static_cast<std::size_t>(chunk.count);
  const EventColumns in = buffer_.columns(chunk.count);
  decoder_.decode(source, chunk, in);
  block_bytes_.assign(count, 0);
  values_.resize(Levels::kCount * count);
  devices_.resize(count);
  unsure_.resize(count);
  std::int64_t* const values = values_.data();
  const compute::Columns columns{.count = count,
                                 .kind = in.kind,
                                 .device = in.device,
                                 .thread = in.thread,
                                 .flags = in.flags,
                                 .address = in.address,
                                 .size = reinterpret_cast<const std::int64_t*>(in.size_bytes),
                                 .stream = in.stream,
                                 .extra = in.extra};
  lines_.feed(columns,
              {devices_.data(), values, values + count, values + 2 * count, values + 3 * count,
               unsure_.data()},
              this);
  records_.clear();
  taken_ = 0;
  bytes_per_record_ = static_cast<double>(chunk.stored_bytes) / static_cast<double>(count);
  for (std::size_t i = 0; i < count; ++i) {
    Record record{};
    record.event = {static_cast<std::uint64_t>(in.time_ns[i]),
                    in.address[i],
                    in.size_bytes[i],
                    in.stream[i],
                    in.extra[i],
                    in.thread[i],
                    in.site[i],
                    in.flags[i],
                    in.device[i],
                    static_cast<Kind>(in.kind[i])};
    for (std::size_t line = 0; line < Levels::kCount; ++line) {
      record.lines.bytes[line] = values[line * count + i];
    }
    record.block_bytes = block_bytes_[i];
    record.device = devices_[i];
    record.unsure = unsure_[i] != 0;
    records_.push_back(record);
  }
}

std::uint32_t UnitReader::born(const compute::Columns& /*records*/, std::size_t i,
                               std::int64_t /*number*/, std::int64_t allocated) {
  block_bytes_[i] = allocated;
  return 0;
}

bool UnitReader::take(Unit& unit) {
  while (taken_ < records_.size()) {
    const Record& record = records_[taken_++];
    unit_.records.push_back(record);
    unit_.bytes += bytes_per_record_;
    unit_.has_baseline |= is_baseline(record.event);
    unit_.has_aged |= record.event.kind == Kind::kAged;
    if (record.event.kind == Kind::kStep || unit_.records.size() == most_records_) {
      unit_.is_whole = true;
      return take_rest(unit);
    }
  }
  return false;
}

bool UnitReader::take_rest(Unit& unit) {
  if (unit_.records.empty()) return false;
  std::swap(unit, unit_);
  unit_.clear();
  unit_.number = unit.number + 1;
  return true;
}

}  // namespace gpumemtrace::ageing
