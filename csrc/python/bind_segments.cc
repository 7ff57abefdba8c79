// compute/segments for Python: free bytes by cause at every record, and the blocks at one instant.
//
// Checks and defaults live in gpumemtrace/analysis/segments.py.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "compute/segments.h"
#include "python/batch.h"
#include "python/bindings.h"

namespace gpumemtrace::python {
namespace {

namespace py = pybind11;
using namespace compute;  // NOLINT: one binding file per topic

constexpr std::array<const char*, kFreeCauses> kCauseNames = {"private_pool", "other_stream",
                                                              "idle", "small_pool", "interleaved"};

void feed(SegmentReplay& replay, const py::dict& columns) {
  const Batch batch(columns);
  const py::gil_scoped_release release;
  replay.feed(batch.view());
}

py::dict feed_lines(SegmentReplay& replay, const py::dict& columns) {
  const Batch batch(columns);
  Array<std::int16_t> device(batch.count());
  Array<std::int64_t> reserved(batch.count()), active(batch.count());
  Array<std::uint8_t> known(batch.count());
  std::vector<Array<std::int64_t>> free;
  for (std::size_t i = 0; i < kFreeCauses; ++i) free.emplace_back(batch.count());
  FreeLines lines{device.mutable_data(),
                  reserved.mutable_data(),
                  active.mutable_data(),
                  {},
                  known.mutable_data()};
  for (std::size_t i = 0; i < kFreeCauses; ++i) lines.free[i] = free[i].mutable_data();
  {
    const py::gil_scoped_release release;
    replay.feed(batch.view(), &lines);
  }
  py::dict causes;
  for (std::size_t i = 0; i < kFreeCauses; ++i) causes[kCauseNames[i]] = free[i];
  py::dict result;
  result["device"] = device;
  result["reserved"] = reserved;
  result["active"] = active;
  result["free"] = causes;
  result["known"] = known;
  return result;
}

// Rows of numbers of one type, a column each.
template <class T>
class Column {
 public:
  void add(T value) { values_.push_back(value); }
  Array<T> array() const {
    return Array<T>(static_cast<py::ssize_t>(values_.size()), values_.data());
  }

 private:
  std::vector<T> values_;
};

py::dict segments(SegmentReplay& replay, std::int16_t device) {
  Column<std::uint64_t> base, stream, pool_first, pool_second;
  Column<std::int64_t> size, page;
  Column<std::uint8_t> is_small;
  const SegmentBlocks& state = replay.blocks();
  state.for_each_segment(device, [&](std::uint32_t i) {
    const auto& segment = state.segment(i);
    const auto& group = state.group_of(segment);
    base.add(segment.base);
    size.add(static_cast<std::int64_t>(segment.size));
    page.add(static_cast<std::int64_t>(segment.page));
    stream.add(group.stream);
    pool_first.add(group.pool.first);
    pool_second.add(group.pool.second);
    is_small.add(group.is_small ? 1 : 0);
  });
  py::dict result;
  result["base"] = base.array();
  result["size_bytes"] = size.array();
  result["stream"] = stream.array();
  result["pool_first"] = pool_first.array();
  result["pool_second"] = pool_second.array();
  result["is_small"] = is_small.array();
  result["page_bytes"] = page.array();
  return result;
}

py::dict blocks(SegmentReplay& replay, std::int16_t device) {
  Column<std::int64_t> segment_of, size, requested, alloc, idle;
  Column<std::uint64_t> address;
  Column<std::uint8_t> block_state;
  const SegmentBlocks& state = replay.blocks();
  std::int64_t row = 0;
  state.for_each_segment(device, [&](std::uint32_t i) {
    for (std::uint32_t b = state.segment(i).first; b != SegmentBlocks::kNone;
         b = state.block(b).next) {
      const auto& block = state.block(b);
      const bool is_free = block.state == SegmentBlocks::State::kFree;
      segment_of.add(row);
      address.add(block.address);
      size.add(static_cast<std::int64_t>(block.size));
      requested.add(is_free ? 0 : block.requested);
      alloc.add(is_free ? -1 : block.number);
      block_state.add(static_cast<std::uint8_t>(block.state));
      idle.add(static_cast<std::int64_t>(state.idle_bytes(b)));
    }
    ++row;
  });
  py::dict result;
  result["segment"] = segment_of.array();
  result["address"] = address.array();
  result["size_bytes"] = size.array();
  result["requested_bytes"] = requested.array();
  result["alloc"] = alloc.array();
  result["state"] = block_state.array();
  result["idle_bytes"] = idle.array();
  return result;
}

// What each group of segments holds and could serve.
py::list groups(SegmentReplay& replay, std::int16_t device) {
  struct Figures {
    std::int64_t segments = 0;
    std::int64_t idle_segments = 0;
    std::uint64_t largest = 0;
    std::uint64_t tail = 0;
    std::uint64_t kept_tail = 0;
    bool is_expandable = false;
  };
  const SegmentBlocks& state = replay.blocks();
  std::vector<Figures> figures(state.groups().size());
  state.for_each_segment(device, [&](std::uint32_t i) {
    const auto& segment = state.segment(i);
    Figures& of = figures[segment.group];
    ++of.segments;
    of.is_expandable |= segment.page != 0;
    if (segment.free == 0) return;
    bool has_idle = false;
    for (std::uint32_t b = segment.first; b != SegmentBlocks::kNone; b = state.block(b).next) {
      const auto& block = state.block(b);
      if (block.state != SegmentBlocks::State::kFree) continue;
      const std::uint64_t idle = state.idle_bytes(b);
      has_idle |= idle != 0;
      of.largest = std::max(of.largest, block.size);
      if (segment.page != 0 && b == segment.last) {
        of.tail = std::max(of.tail, block.size);
        of.kept_tail = std::max(of.kept_tail, block.size - idle);
      }
    }
    of.idle_segments += has_idle ? 1 : 0;
  });
  py::list result;
  for (std::size_t i = 0; i < figures.size(); ++i) {
    const auto& group = state.groups()[i];
    const Figures& of = figures[i];
    if (group.device != device || of.segments == 0) continue;
    py::dict row;
    row["stream"] = group.stream;
    row["pool"] = py::make_tuple(group.pool.first, group.pool.second);
    row["is_small"] = group.is_small;
    row["is_expandable"] = of.is_expandable;
    row["segments"] = of.segments;
    row["idle_segments"] = of.idle_segments;
    row["reserved_bytes"] = group.reserved;
    row["free_bytes"] = group.free;
    row["idle_bytes"] = group.idle;
    row["largest_free_bytes"] = of.largest;
    row["largest_tail_bytes"] = of.tail;
    row["kept_tail_bytes"] = of.kept_tail;
    result.append(row);
  }
  return result;
}

py::dict totals(SegmentReplay& replay, std::int16_t device) {
  const auto& sums = replay.blocks().totals(device);
  py::dict causes;
  for (std::size_t i = 0; i < kFreeCauses; ++i) causes[kCauseNames[i]] = sums.free[i];
  py::dict result;
  result["known"] = replay.is_known(device);
  result["reserved"] = sums.reserved;
  result["allocated"] = sums.live;
  result["pending"] = sums.pending;
  result["main_stream"] = sums.main_stream;
  result["free"] = causes;
  return result;
}

std::vector<std::int16_t> devices(const SegmentReplay& replay) {
  std::vector<std::int16_t> result;
  for (const auto& [number, state] : replay.devices()) result.push_back(number);
  return result;
}

}  // namespace

void register_segments(py::module_& module) {
  py::class_<SegmentReplay>(module, "SegmentReplay",
                            "The allocator's segments, replayed; feed batches in order.")
      .def(py::init<>())
      .def("feed", &feed, py::arg("columns"))
      .def("feed_lines", &feed_lines, py::arg("columns"),
           "Feed, and return for each record its device (int16, -1 = none), reserved, active and "
           "free by cause (int64 bytes after it), and whether they are known (uint8).")
      .def("segments", &segments, py::arg("device"), "Columns with a row per segment, by address.")
      .def("blocks", &blocks, py::arg("device"), "Columns with a row per block, by address.")
      .def("groups", &groups, py::arg("device"), "What each stream and pool holds.")
      .def("totals", &totals, py::arg("device"))
      .def_property_readonly("devices", &devices);
}

}  // namespace gpumemtrace::python
