// Names on their way to the file, kept where a killed process leaves them.
#pragma once

#include <cstdint>
#include <mutex>
#include <string_view>

#include "capture/segment_layout.h"

namespace gpumemtrace::capture {

// Whoever defines a name adds it; the drain turns the page when it is about to write what is new to
// the file. A name then stays for one more page: that it is found although the file has it, too,
// does no harm. One that finds no room is left out, and counted: should the process be killed in the
// next few milliseconds, the trace lacks its text.
class NameLog {
 public:
  // Two pages, zeroed; they must outlive the log.
  explicit NameLog(NamesPage* pages) noexcept : pages_(pages) {}

  // Any thread.
  void add_phase(std::uint32_t id, std::uint32_t parent, std::string_view name) noexcept {
    add({id, parent, 0, NameEntryType::kPhase, 0}, name);
  }
  void add_string(std::uint32_t id, std::string_view text) noexcept {
    add({id, 0, 0, NameEntryType::kString, 0}, text);
  }
  void add_thread(std::uint32_t index, std::uint32_t os_tid, std::string_view name) noexcept {
    add({index, os_tid, 0, NameEntryType::kThread, 0}, name);
  }

  // What was added before the last turn is in the file: its page is used again.
  void turn() noexcept;

 private:
  void add(NameEntry entry, std::string_view text) noexcept;

  std::mutex mutex_;
  NamesPage* pages_;
  int page_ = 0;
};

}  // namespace gpumemtrace::capture
