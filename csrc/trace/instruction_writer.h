// Instructions of codec 2 (history_format.h) to bytes. Successive events that are copied, or
// followed, become one instruction.
#pragma once

#include <cstdint>
#include <vector>

#include "trace/history_format.h"

namespace gpumemtrace {

// May throw std::bad_alloc. Keeps its memory from one chunk to the next.
class InstructionWriter {
 public:
  void clear() noexcept;
  // After the last instruction. Until the next clear().
  const std::vector<std::uint8_t>& finish();

  // `count` >= 1 more events are copied or followed: kCopy or kFollow.
  void extend_run(Operation run, std::uint64_t count);
  // Whether the latest instruction is such a run, so that extend_run() may cost nothing.
  bool is_in(Operation run) const noexcept { return run_count_ != 0 && run_ == run; }

  // Any other instruction; its values follow in order.
  void begin(Operation operation, unsigned argument);
  void put_byte(unsigned value) { bytes_.push_back(static_cast<std::uint8_t>(value)); }
  void put_varint(std::uint64_t value);
  // An address or size: the reference, or when that is 0 the difference to what was foreseen.
  void put_place(std::uint32_t reference, std::uint64_t difference, std::uint64_t unit);
  // `near`: the estimate; `foreseen`: the field of the event that was foreseen.
  void put_extra(std::uint64_t extra, std::uint64_t near, std::uint64_t foreseen);

 private:
  void end_run();

  std::vector<std::uint8_t> bytes_;
  Operation run_ = Operation::kCopy;
  std::uint64_t run_count_ = 0;  // events of the run not yet written; 0 = in no run
};

}  // namespace gpumemtrace
