// What the file says beside events: names for their numbers, and the run record.
#pragma once

#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

#include "capture/name_log.h"
#include "capture/output.h"

namespace gpumemtrace::capture {

// The write_ functions on the drain thread; add_metadata() from anywhere.
class Annotations {
 public:
  // `log` (or nullptr): keeps names until they are in the file.
  explicit Annotations(NameLog* log) noexcept : log_(log) {}

  // Phases, texts and threads defined since the last call. To be called after events were taken
  // from the ring and before they are written: whoever used a number had defined its name before.
  // Before the file is open nothing is written, and nothing is lost.
  void write_new_names(TraceOutput& output);

  // A JSON object, for the next write_new_metadata().
  void add_metadata(const std::string& json);
  void write_new_metadata(TraceOutput& output);

  // Asks the metadata source (producer.h); writes its answer when that is a new one.
  void write_source_metadata(TraceOutput& output);

 private:
  NameLog* log_;
  std::size_t threads_written_ = 0;
  bool names_started_ = false;
  std::string source_said_;

  std::mutex mutex_;  // guards what follows
  std::vector<std::string> added_;
};

}  // namespace gpumemtrace::capture
