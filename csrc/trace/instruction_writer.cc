#include "trace/instruction_writer.h"

#include "trace/varint.h"

namespace gpumemtrace {

void InstructionWriter::clear() noexcept {
  bytes_.clear();
  run_count_ = 0;
}

const std::vector<std::uint8_t>& InstructionWriter::finish() {
  end_run();
  return bytes_;
}

void InstructionWriter::extend_run(Operation run, std::uint64_t count) {
  if (!is_in(run)) end_run();
  run_ = run;
  run_count_ += count;
}

void InstructionWriter::end_run() {
  if (run_count_ == 0) return;
  const std::uint64_t more = run_count_ - 1;
  run_count_ = 0;
  if (more < kLongCount) {
    begin(run_, static_cast<unsigned>(more));
  } else {
    begin(run_, kLongCount);
    put_varint(more - kLongCount);
  }
}

void InstructionWriter::begin(Operation operation, unsigned argument) {
  end_run();
  put_byte(static_cast<unsigned>(operation) | argument << kOperationBits);
}

void InstructionWriter::put_varint(std::uint64_t value) {
  std::uint8_t bytes[kMaxVarintBytes];
  bytes_.insert(bytes_.end(), bytes, gpumemtrace::put_varint(bytes, value));
}

void InstructionWriter::put_place(std::uint32_t reference, std::uint64_t difference,
                                  std::uint64_t unit) {
  const auto units = static_cast<std::uint64_t>(static_cast<std::int64_t>(difference) /
                                                static_cast<std::int64_t>(unit));
  if (reference != 0) {
    put_varint(std::uint64_t{reference} << 1);
  } else if (units * unit == difference && zigzag(units) >> 63 == 0) {
    put_varint(zigzag(units) << 1 | 1);
  } else {
    put_varint(0);
    put_varint(zigzag(difference));
  }
}

void InstructionWriter::put_extra(std::uint64_t extra, std::uint64_t near, std::uint64_t foreseen) {
  const std::uint64_t folded = zigzag(extra - near);
  if (extra == 0) {
    put_varint(0);
  } else if (folded <= UINT64_MAX - 2) {
    put_varint(folded + 2);
  } else {
    put_varint(1);
    put_varint(zigzag(extra - foreseen));
  }
}

}  // namespace gpumemtrace
