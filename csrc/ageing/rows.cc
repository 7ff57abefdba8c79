#include "ageing/rows.h"

namespace gpumemtrace::ageing {

Rows RowBuffer::rows() noexcept {
  Rows rows;
  rows.count = size_;
  rows.events = {time_.data(),      kind_.data(),    wide_[0].data(),   wide_[1].data(),
                 wide_[2].data(),   wide_[3].data(), narrow_[0].data(), narrow_[1].data(),
                 narrow_[2].data(), device_.data()};
  for (std::size_t line = 0; line < Levels::kCount; ++line) rows.lines[line] = lines_[line].data();
  rows.block_bytes = block_bytes_.data();
  rows.of_device = of_device_.data();
  rows.unsure = unsure_.data();
  rows.since_alloc = since_alloc_.data();
  return rows;
}

template <class Each>
void RowBuffer::for_each_decoded(Each each) {
  each(time_);
  each(kind_);
  for (auto& column : wide_) each(column);
  for (auto& column : narrow_) each(column);
  each(device_);
}

void RowBuffer::grow(std::size_t count) {
  size_ += count;
  if (size_ <= time_.size()) return;
  const auto resize = [this](auto& column) { column.resize(size_); };
  for_each_decoded(resize);
  for (auto& line : lines_) resize(line);
  resize(block_bytes_);
  resize(of_device_);
  resize(unsure_);
  resize(since_alloc_);
}

void RowBuffer::append(const Rows& rows) {
  const std::size_t first = size_;
  grow(rows.count);
  const auto copy = [&](const auto* from, auto& to) {
    std::copy_n(from, rows.count, to.begin() + static_cast<std::ptrdiff_t>(first));
  };
  copy(rows.events.time_ns, time_);
  copy(rows.events.kind, kind_);
  copy(rows.events.address, wide_[0]);
  copy(rows.events.size_bytes, wide_[1]);
  copy(rows.events.stream, wide_[2]);
  copy(rows.events.extra, wide_[3]);
  copy(rows.events.thread, narrow_[0]);
  copy(rows.events.site, narrow_[1]);
  copy(rows.events.flags, narrow_[2]);
  copy(rows.events.device, device_);
  for (std::size_t line = 0; line < Levels::kCount; ++line) copy(rows.lines[line], lines_[line]);
  copy(rows.block_bytes, block_bytes_);
  copy(rows.of_device, of_device_);
  copy(rows.unsure, unsure_);
  copy(rows.since_alloc, since_alloc_);
}

void RowBuffer::drop_front(std::size_t count) {
  for_each_decoded([&](auto& column) {
    const auto begin = column.begin();
    std::copy(begin + static_cast<std::ptrdiff_t>(count),
              begin + static_cast<std::ptrdiff_t>(size_), begin);
  });
  size_ -= count;
}

void RowBuffer::release() { *this = RowBuffer(); }

}  // namespace gpumemtrace::ageing
