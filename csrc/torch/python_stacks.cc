#include "torch/python_stacks.h"

#include <pthread.h>
#include <pybind11/pybind11.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <unordered_map>

#include "capture/sites.h"
#include "torch/file_names.h"
#include "torch/python_frames.h"
#include "torch/python_lines.h"

namespace gpumemtrace::hook {
namespace {

using capture::SiteTable;

// Open addressing; at most half full. A stack is told by 64 bits of hash.
constexpr std::size_t kSlotBits = 17;
constexpr std::size_t kMostStacks = std::size_t{1} << (kSlotBits - 1);
constexpr std::uint64_t kMultiplier = 0x9E3779B97F4A7C15ULL;

struct Slot {
  std::atomic<std::uint64_t> key{0};  // 0 = empty. release (insert) -> acquire (find)
  std::atomic<std::uint32_t> site{0};
};

struct Table {
  std::array<Slot, std::size_t{1} << kSlotBits> slots;
  std::size_t count = 0;
};

struct State {
  std::mutex mutex;                                        // never held while the GIL is waited for
  std::unordered_map<PyCodeObject*, std::uint32_t> codes;  // each is held on to
  // release (start) -> acquire (site_now). Never freed: a thread may be looking into it.
  std::atomic<Table*> table{nullptr};
};

State& state() {
  static auto* the_state = [] {
    auto* made = new State;
    // A child of fork must not find it locked by a thread that it hasn't got.
    pthread_atfork([] { state().mutex.lock(); }, [] { state().mutex.unlock(); },
                   [] { state().mutex.unlock(); });
    return made;
  }();
  return *the_state;
}

std::uint64_t mixed(std::uint64_t hash, std::uint64_t value) noexcept {
  hash = (hash ^ value) * kMultiplier;
  return hash ^ hash >> 29;
}

std::size_t slot_of(std::uint64_t key) noexcept {
  return static_cast<std::size_t>(key * kMultiplier >> (64 - kSlotBits));
}

std::uint32_t find(const Table& table, std::uint64_t key) noexcept {
  for (std::size_t at = slot_of(key);; at = (at + 1) % table.slots.size()) {
    const Slot& slot = table.slots[at];
    const std::uint64_t there = slot.key.load(std::memory_order_acquire);
    if (there == key) return slot.site.load(std::memory_order_relaxed);
    if (there == 0) return 0;
  }
}

void insert(Table& table, std::uint64_t key, std::uint32_t site) noexcept {
  if (table.count >= kMostStacks) return;
  std::size_t at = slot_of(key);
  while (table.slots[at].key.load(std::memory_order_relaxed) != 0) {
    if (table.slots[at].key.load(std::memory_order_relaxed) == key) return;
    at = (at + 1) % table.slots.size();
  }
  table.slots[at].site.store(site, std::memory_order_relaxed);
  table.slots[at].key.store(key, std::memory_order_release);
  ++table.count;
}

std::string_view utf8(PyObject* text) noexcept {
  Py_ssize_t size = 0;
  const char* bytes = text == nullptr ? nullptr : PyUnicode_AsUTF8AndSize(text, &size);
  if (bytes == nullptr) {  // a lone surrogate
    PyErr_Clear();
    return "?";
  }
  return {bytes, static_cast<std::size_t>(size)};
}

// Holds on to code objects that are new in these frames. False: it can't be had now.
bool learn_codes(const PythonFrame* frames, std::size_t count, bool confidential) noexcept {
  State& all = state();
  const auto is_known = [&](PyCodeObject* code) {
    const std::lock_guard guard(all.mutex);
    return all.codes.count(code) != 0;
  };
  bool has_new = false;
  for (std::size_t i = 0; i < count && !has_new; ++i) has_new = !is_known(frames[i].code);
  if (!has_new) return true;
#if PY_VERSION_HEX >= 0x030D0000
  if (Py_IsFinalizing()) return false;
#else
  if (_Py_IsFinalizing()) return false;
#endif
  const PyGILState_STATE gil = PyGILState_Ensure();
  bool done = true;
  try {
    const pybind11::error_scope pending;  // perhaps there is one: it must stay
    for (std::size_t i = 0; i < count; ++i) {
      PyCodeObject* const code = frames[i].code;
      if (is_known(code)) continue;
#if PY_VERSION_HEX >= 0x030B0000
      PyObject* const name = code->co_qualname;
#else
      PyObject* const name = code->co_name;
#endif
      PyObject* const lines = code->co_linetable;
      std::string file(utf8(code->co_filename));
      if (confidential) file = without_folders(file);
      const capture::CodeText text{
          file, utf8(name),
          PyBytes_Check(lines) ? std::string_view{PyBytes_AS_STRING(lines),
                                                  static_cast<std::size_t>(PyBytes_GET_SIZE(lines))}
                               : std::string_view{},
          code->co_firstlineno, &line_of};
      const std::uint32_t number = capture::site_table().define_code(text);
      const std::lock_guard guard(all.mutex);
      if (all.codes.emplace(code, number).second) Py_INCREF(reinterpret_cast<PyObject*>(code));
    }
  } catch (const std::bad_alloc&) {
    done = false;
  }
  PyGILState_Release(gil);
  return done;
}

std::uint32_t define(Table& table, std::uint64_t key, std::uint32_t plain,
                     const PythonFrame* frames, std::size_t count, bool confidential) noexcept try {
  SiteTable& sites = capture::site_table();
  if (table.count >= kMostStacks || !learn_codes(frames, count, confidential)) {
    return sites.variant(plain, StackState::kTooMany);
  }
  State& all = state();
  const std::lock_guard guard(all.mutex);
  std::uint32_t frame = 0;
  for (std::size_t i = count; i-- > 0;) {
    const auto code = all.codes.find(frames[i].code);
    frame = code == all.codes.end() || code->second == 0
                ? 0
                : sites.define_frame(frame, code->second, frames[i].instruction);
    if (frame == 0) return sites.variant(plain, StackState::kTooMany);
  }
  const std::uint32_t site =
      sites.define_site({sites.site(plain).module, frame, StackState::kTaken});
  if (site == 0) return sites.variant(plain, StackState::kTooMany);
  insert(table, key, site);
  return site;
} catch (const std::exception&) {
  return plain;
}

}  // namespace

PythonStacks& PythonStacks::instance() {
  static auto* stacks = new PythonStacks;
  return *stacks;
}

bool PythonStacks::start() {
  if (!frames_are_readable()) return false;
  stop();
  if (state().table.load(std::memory_order_relaxed) == nullptr) {
    state().table.store(new Table, std::memory_order_release);
  }
  return true;
}

void PythonStacks::stop() {
  std::unordered_map<PyCodeObject*, std::uint32_t> codes;
  {
    const std::lock_guard guard(state().mutex);
    if (Table* const table = state().table.load(std::memory_order_relaxed)) {
      for (Slot& slot : table->slots) slot.key.store(0, std::memory_order_relaxed);
      table->count = 0;
    }
    codes.swap(state().codes);
  }
  for (auto& [code, number] : codes) Py_DECREF(reinterpret_cast<PyObject*>(code));
}

std::uint32_t PythonStacks::site_now(std::uint32_t plain) noexcept {
  Table* const table = state().table.load(std::memory_order_acquire);
  const PyThreadState* const thread = PyGILState_GetThisThreadState();
  if (table == nullptr || thread == nullptr) return 0;
  PythonFrame frames[kMostFrames];
  const std::size_t count = read_frames(thread, frames);
  if (count == 0) return 0;
  std::uint64_t key = plain;
  for (std::size_t i = 0; i < count; ++i) {
    key = mixed(key, reinterpret_cast<std::uintptr_t>(frames[i].code) ^
                         std::uint64_t{frames[i].instruction} * kMultiplier);
  }
  if (key == 0) key = 1;
  const std::uint32_t site = find(*table, key);
  return site != 0 ? site : define(*table, key, plain, frames, count, confidential_);
}

}  // namespace gpumemtrace::hook
