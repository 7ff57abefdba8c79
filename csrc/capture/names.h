// Names stand in the file once; events carry their numbers.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace gpumemtrace::capture {

class NameLog;

// Phase paths and texts. Any thread defines; one thread at a time collects what is new. Numbers
// hold for the whole process, so that callers may keep them from one session to the next.
//
// Memory is bounded: the first 65,536 names are remembered (the same name gets the same number
// again, and each session's file tells them anew). A name beyond these, such as a mark with a
// number in its text, gets a number of its own each time and is forgotten once the file has it.
class NameTable {
 public:
  // A phase within a phase; parent 0 = at top level. The same pair gives the same number (>= 1).
  std::uint32_t define_phase(std::uint32_t parent, std::string_view name);
  std::uint32_t define_string(std::string_view text);

  // From now on everything remembered is new again. `log` hears of what is defined
  // from here to end_session().
  void begin_session(NameLog* log = nullptr);
  void end_session();

  // Cheap: whether collect() would find anything. acquire <- release in define.
  bool has_news() const noexcept { return news_.load(std::memory_order_acquire); }
  // Appends the new ones as JSON array elements: [id,parent,"name"] and [id,"text"].
  void collect(std::string& phases, std::string& strings);

  // Around fork: the forking thread holds the lock, so that the child finds it whole.
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }
  void forget_session_locked() noexcept {
    in_session_ = false;
    log_ = nullptr;
  }

 private:
  struct Name {
    bool is_phase;
    std::uint32_t id;
    std::uint32_t parent;
    std::string text;
  };
  std::uint32_t define(bool is_phase, std::uint32_t parent, std::string_view text);

  std::mutex mutex_;
  std::unordered_map<std::string, std::uint32_t> ids_;
  std::vector<Name> remembered_;
  std::size_t collected_ = 0;  // of remembered_
  std::vector<Name> passing_;  // beyond the limit, not collected yet
  std::uint32_t next_phase_ = 1;
  std::uint32_t next_string_ = 1;
  bool in_session_ = false;
  NameLog* log_ = nullptr;
  std::atomic<bool> news_{false};
};

// Lives for the whole process, through exit.
NameTable& name_table() noexcept;

}  // namespace gpumemtrace::capture
