// Pickles of plain data, read without the power to run anything.
//
// Python's own unpickler calls what a pickle names. This one knows only the opcodes that make None,
// bool, int, float, str, bytes, list, tuple and dict with str keys; any other ends the reading, so
// nothing is ever looked up, imported or called. What a pickle can claim is bounded by the bytes
// that it has: lengths are checked before they are used (ByteReader), memo numbers have to follow
// one another, integers have at most 64 bits, and keys are str, which cannot be made to collide.
#include <pybind11/pybind11.h>

#include <bit>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "python/bindings.h"
#include "trace/byte_reader.h"
#include "trace/format_error.h"

namespace gpumemtrace::python {
namespace {

namespace py = pybind11;

// As in Python's Lib/pickle.py, by their names there; protocols 2 to 5.
enum Opcode : std::uint8_t {
  kMark = '(',
  kStop = '.',
  kPop = '0',
  kPopMark = '1',
  kDup = '2',
  kBinFloat = 'G',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kNone = 'N',
  kBinUnicode = 'X',
  kEmptyList = ']',
  kAppend = 'a',
  kDict = 'd',
  kAppends = 'e',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kList = 'l',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kSetItem = 's',
  kTuple = 't',
  kSetItems = 'u',
  kEmptyTuple = ')',
  kEmptyDict = '}',
  kBinBytes = 'B',
  kShortBinBytes = 'C',
  kProto = 0x80,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8a,
  kShortBinUnicode = 0x8c,
  kBinUnicode8 = 0x8d,
  kBinBytes8 = 0x8e,
  kMemoize = 0x94,
  kFrame = 0x95,
};

class PlainUnpickler {
 public:
  PlainUnpickler(const std::uint8_t* data, std::size_t size) : in_(data, size, 0) {}

  py::object load() {
    for (std::uint32_t count = 0;; ++count) {
      if (count % 65'536 == 0 && PyErr_CheckSignals() != 0) throw py::error_already_set();
      const auto opcode = in_.load<std::uint8_t>("the pickle");
      if (opcode == kStop) return pop();
      step(opcode);
    }
  }

 private:
  static constexpr std::size_t kMostMarks = 1'000;  // lists in lists in ...

  void step(std::uint8_t opcode) {
    switch (opcode) {
      case kProto:
        return protocol(in_.load<std::uint8_t>("the protocol"));
      case kFrame:
        in_.load<std::uint64_t>("a frame");  // only says how much may be read ahead
        return;
      case kNone:
        return push(py::none());
      case kNewTrue:
        return push(py::bool_(true));
      case kNewFalse:
        return push(py::bool_(false));
      case kBinInt:
        return push(py::int_(in_.load<std::int32_t>("an integer")));
      case kBinInt1:
        return push(py::int_(in_.load<std::uint8_t>("an integer")));
      case kBinInt2:
        return push(py::int_(in_.load<std::uint16_t>("an integer")));
      case kLong1:
        return integer();
      case kBinFloat:
        return real();
      case kShortBinUnicode:
        return text(in_.load<std::uint8_t>("a text"));
      case kBinUnicode:
        return text(in_.load<std::uint32_t>("a text"));
      case kBinUnicode8:
        return text(in_.load<std::uint64_t>("a text"));
      case kShortBinBytes:
        return bytes(in_.load<std::uint8_t>("bytes"));
      case kBinBytes:
        return bytes(in_.load<std::uint32_t>("bytes"));
      case kBinBytes8:
        return bytes(in_.load<std::uint64_t>("bytes"));
      case kMark:
        if (marks_.size() >= kMostMarks) fail("is nested too deeply");
        return marks_.push_back(stack_.size());
      case kPop:
        pop();
        return;
      case kPopMark:
        return stack_.resize(mark());
      case kDup:
        return push(top());
      default:
        return container(opcode);
    }
  }

  void container(std::uint8_t opcode) {
    switch (opcode) {
      case kEmptyList:
        return push(py::list());
      case kEmptyDict:
        return push(py::dict());
      case kEmptyTuple:
        return push(py::tuple());
      case kTuple1:
        return tuple(1);
      case kTuple2:
        return tuple(2);
      case kTuple3:
        return tuple(3);
      case kTuple: {
        const std::size_t first = mark();
        return tuple(stack_.size() - first);
      }
      case kList: {
        const std::size_t first = mark();
        const py::list list;
        append(list, first);
        return push(list);
      }
      case kDict: {
        const std::size_t first = mark();
        const py::dict dict;
        set_items(dict, first);
        return push(dict);
      }
      case kAppend:
        return append_to(floor_of(1));
      case kAppends:
        return append_to(mark());
      case kSetItem:
        return set_items_of(floor_of(2));
      case kSetItems:
        return set_items_of(mark());
      case kMemoize:
        return memoize(memo_.size());
      case kBinPut:
        return memoize(in_.load<std::uint8_t>("a memo number"));
      case kLongBinPut:
        return memoize(in_.load<std::uint32_t>("a memo number"));
      case kBinGet:
        return recall(in_.load<std::uint8_t>("a memo number"));
      case kLongBinGet:
        return recall(in_.load<std::uint32_t>("a memo number"));
      default:
        fail("is more than plain data: it holds the opcode " + std::to_string(opcode));
    }
  }

  void protocol(std::uint8_t version) {
    if (version < 2 || version > 5)
      fail("has protocol " + std::to_string(version) + ", not 2 to 5");
  }

  void integer() {
    const auto size = in_.load<std::uint8_t>("an integer");
    const std::uint8_t* data = in_.take(size, "an integer");
    if (size > 9) fail("holds an integer of more than 64 bits");
    push(steal(_PyLong_FromByteArray(data, size, /*little_endian=*/1, /*is_signed=*/1)));
  }

  void real() {
    const std::uint8_t* data = in_.take(8, "a float");
    std::uint64_t bits = 0;
    for (int i = 0; i < 8; ++i) bits = bits << 8 | data[i];
    push(py::float_(std::bit_cast<double>(bits)));
  }

  void text(std::uint64_t size) {
    const auto* data = reinterpret_cast<const char*>(in_.take(size, "a text"));
    push(steal(PyUnicode_DecodeUTF8(data, static_cast<Py_ssize_t>(size), "surrogatepass")));
  }

  void bytes(std::uint64_t size) {
    const auto* data = reinterpret_cast<const char*>(in_.take(size, "bytes"));
    push(steal(PyBytes_FromStringAndSize(data, static_cast<Py_ssize_t>(size))));
  }

  void tuple(std::size_t count) {
    const std::size_t first = floor_of(count);
    py::tuple made(count);
    for (std::size_t i = 0; i < count; ++i) {
      PyTuple_SET_ITEM(made.ptr(), static_cast<Py_ssize_t>(i), stack_[first + i].release().ptr());
    }
    stack_.resize(first);
    push(std::move(made));
  }

  void append_to(std::size_t first) {
    if (first <= floor() || !PyList_CheckExact(stack_[first - 1].ptr())) fail("appends to no list");
    append(stack_[first - 1], first);
  }

  void append(const py::object& list, std::size_t first) {
    for (std::size_t i = first; i < stack_.size(); ++i) {
      if (PyList_Append(list.ptr(), stack_[i].ptr()) != 0) throw py::error_already_set();
    }
    stack_.resize(first);
  }

  void set_items_of(std::size_t first) {
    if (first <= floor() || !PyDict_CheckExact(stack_[first - 1].ptr()))
      fail("sets items of no dict");
    set_items(stack_[first - 1], first);
  }

  void set_items(const py::object& dict, std::size_t first) {
    if ((stack_.size() - first) % 2 != 0) fail("has a key without a value");
    for (std::size_t i = first; i < stack_.size(); i += 2) {
      if (!PyUnicode_CheckExact(stack_[i].ptr())) fail("has a key that is no text");
      if (PyDict_SetItem(dict.ptr(), stack_[i].ptr(), stack_[i + 1].ptr()) != 0) {
        throw py::error_already_set();
      }
    }
    stack_.resize(first);
  }

  void memoize(std::size_t number) {
    if (number > memo_.size()) fail("leaves out a memo number");
    if (number == memo_.size()) {
      memo_.push_back(top());
    } else {
      memo_[number] = top();
    }
  }

  void recall(std::size_t number) {
    if (number >= memo_.size()) fail("uses a memo number before it is set");
    push(memo_[number]);
  }

  static py::object steal(PyObject* made) {
    if (made == nullptr) throw py::error_already_set();
    return py::reinterpret_steal<py::object>(made);
  }

  void push(py::object value) { stack_.push_back(std::move(value)); }

  // Nothing below an open mark may be taken: it belongs to what the mark is in.
  std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }

  std::size_t floor_of(std::size_t count) const {
    if (stack_.size() - floor() < count) fail("takes more than it has");
    return stack_.size() - count;
  }

  const py::object& top() const { return stack_[floor_of(1)]; }

  py::object pop() {
    py::object value = top();
    stack_.pop_back();
    return value;
  }

  std::size_t mark() {
    if (marks_.empty()) fail("ends what it has not begun");
    const std::size_t first = marks_.back();
    marks_.pop_back();
    return first;
  }

  [[noreturn]] void fail(const std::string& problem) const {
    in_.fail("the pickle", problem.c_str());
  }

  ByteReader in_;
  std::vector<py::object> stack_;
  std::vector<std::size_t> marks_;
  std::vector<py::object> memo_;
};

py::object load_plain_pickle(const py::buffer& buffer) {
  const py::buffer_info info = buffer.request();
  const auto size = static_cast<std::size_t>(info.size * info.itemsize);
  return PlainUnpickler(static_cast<const std::uint8_t*>(info.ptr), size).load();
}

}  // namespace

void register_plain_pickle(py::module_& module) {
  module.def("load_plain_pickle", &load_plain_pickle, py::arg("buffer"),
             "Return what a pickle of plain data holds; FormatError for any other.");
}

}  // namespace gpumemtrace::python
