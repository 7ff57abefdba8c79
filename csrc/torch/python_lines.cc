#include "torch/python_lines.h"

#include <Python.h>

#include <cstddef>

namespace gpumemtrace::hook {

#if PY_VERSION_HEX >= 0x030B0000

namespace {

// Entries of CPython's location table (Objects/locations.md in its source): each stands for some
// instructions.
//
//   first byte   1 | 4 bits kind | 3 bits instructions - 1
//   kind         0..9 a short form: one byte more, same line
//                10..12 lines + kind - 10: two bytes more
//                13 no columns: varint zigzag(lines)
//                14 long: varint zigzag(lines), three more varints
//                15 no line
// Bytes that are not first ones have their highest bit clear.
class Locations {
 public:
  explicit Locations(std::string_view table) noexcept : table_(table) {}

  bool next() noexcept {
    if (at_ >= table_.size()) return false;
    const unsigned first = byte(at_++);
    instructions_ = (first & 7U) + 1;
    const unsigned kind = first >> 3 & 15U;
    delta_ = 0;
    has_line_ = kind != 15;
    if (kind >= 10 && kind <= 12) {
      delta_ = static_cast<int>(kind) - 10;
    } else if (kind == 13 || kind == 14) {
      const unsigned folded = varint();
      delta_ = (folded & 1U) != 0 ? -static_cast<int>(folded >> 1) : static_cast<int>(folded >> 1);
    }
    while (at_ < table_.size() && (byte(at_) & 0x80U) == 0) ++at_;
    return true;
  }

  std::uint32_t instructions() const noexcept { return instructions_; }
  int delta() const noexcept { return delta_; }
  bool has_line() const noexcept { return has_line_; }

 private:
  unsigned byte(std::size_t at) const noexcept { return static_cast<std::uint8_t>(table_[at]); }

  // 6 bits a byte, lowest first; bit 6 says that more follow.
  unsigned varint() noexcept {
    unsigned value = 0;
    for (unsigned shift = 0; at_ < table_.size() && shift < 30; shift += 6) {
      const unsigned next = byte(at_++);
      value |= (next & 63U) << shift;
      if ((next & 64U) == 0) break;
    }
    return value;
  }

  std::string_view table_;
  std::size_t at_ = 0;
  std::uint32_t instructions_ = 0;
  int delta_ = 0;
  bool has_line_ = false;
};

}  // namespace

int line_of(const capture::CodeText& code, std::uint32_t instruction) noexcept {
  Locations entry(code.line_table);
  int line = code.first_line;
  std::uint64_t end = 0;
  while (entry.next()) {
    line += entry.delta();
    end += entry.instructions();
    if (instruction < end) return entry.has_line() ? line : 0;
  }
  return 0;
}

#else

// Pairs of bytes (Objects/lnotab_notes.txt): so many bytes of bytecode, so many lines (signed; -128:
// no line).
int line_of(const capture::CodeText& code, std::uint32_t instruction) noexcept {
  const std::uint64_t wanted = std::uint64_t{instruction} * sizeof(_Py_CODEUNIT);
  int line = code.first_line;
  std::uint64_t end = 0;
  for (std::size_t at = 0; at + 1 < code.line_table.size(); at += 2) {
    const int delta = static_cast<signed char>(code.line_table[at + 1]);
    const bool has_line = delta != -128;
    if (has_line) line += delta;
    end += static_cast<std::uint8_t>(code.line_table[at]);
    if (wanted < end) return has_line ? line : 0;
  }
  return 0;
}

#endif

}  // namespace gpumemtrace::hook
