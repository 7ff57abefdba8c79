// A flight recording: the latest part of the trace in memory, and when it is written to which file.
//
//   the end of the session, or a signal that ends the process    <path>
//   out of memory, at most once per window                       <path without .gmt>.oom-1.gmt
//   SIGUSR2                                                      <path without .gmt>.sigusr2-1.gmt
//   dump()                                                       <path without .gmt>.dump-1.gmt
//
// Each file is a whole trace. Nothing is overwritten, except <path> if it was asked for.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "capture/flight_window.h"
#include "trace/event.h"
#include "trace/sink.h"

namespace gpumemtrace::capture {

struct FlightOptions {
  FlightWindowOptions window;
  std::string path;
  bool overwrite = false;
  std::uint64_t time_resolution_ns = 1;
  bool announce = false;  // say a line for each file that isn't asked for by dump() or a normal end
  std::function<void(const std::string&)> warn;  // a line for stderr
};

// What became of a request: the file, or why there is none.
struct FlightFile {
  std::string path;
  std::string error;  // empty = all is well
  int error_number = 0;
  std::uint64_t bytes = 0;
};

class FlightRecorder {
 public:
  explicit FlightRecorder(FlightOptions options);

  // --- any thread ---

  // Has the drain thread write a file with all that was recorded up to now, and waits for it. An empty
  // `path` lets it choose a name.
  FlightFile dump(const std::string& path, bool overwrite);
  std::vector<std::string> files() const;
  std::uint64_t last_file_bytes() const;

  // --- the drain thread ---

  std::unique_ptr<Sink> make_sink() { return window_.make_sink(); }
  FlightWindow& window() noexcept { return window_; }
  // Groups of the window should be about this long.
  std::int64_t group_ns() const noexcept;

  // A request for memory could not be served.
  void saw_failed_alloc() noexcept { oom_seen_ = true; }
  // At the beginning of a pass: whether a file is to be written at its end. A failed request is
  // followed by more events, so its turn comes with the next pass.
  bool begin_pass(std::uint64_t now_ns);
  // At the end of such a pass, when the window has everything. `footer` gives the footer for a reason.
  using Footer = std::function<std::string(const std::string& reason)>;
  void write_wanted(const Footer& footer);
  // The last file, <path>, or beside it where that has been taken meanwhile; after it dump() gives an
  // error. `trigger`: "end", or the name of a signal.
  FlightFile write_last(const std::string& trigger, const std::string& footer_json);
  // There is nothing to write: tells it whoever waits. `for_good`: dump() gives that error from now on.
  void refuse(const std::string& why, bool for_good);

 private:
  struct Request {
    std::string path;
    bool overwrite = false;
    bool done = false;
    FlightFile file;
  };
  static constexpr int kMostOomFiles = 10;

  FlightFile write_named(const std::string& trigger, const Footer& footer);
  FlightFile write_file(const std::string& path, bool overwrite, const std::string& trigger,
                        const std::string& footer_json);
  void announce(const std::string& why, const std::string& command, const FlightFile& file);
  void serve(const std::vector<Request*>& requests, const Footer& footer);
  void take_requests(const std::string& refusal);
  void answer(Request& request, FlightFile file);

  FlightOptions options_;
  FlightWindow window_;
  bool oom_seen_ = false;
  bool oom_is_due_ = false;
  std::uint64_t next_oom_file_ns_ = 0;
  int oom_files_ = 0;
  bool signal_asks_ = false;
  std::vector<Request*> taken_;  // of this pass

  mutable std::mutex mutex_;  // guards what follows, and each Request
  std::condition_variable served_;
  std::vector<Request*> requests_;
  std::vector<std::string> files_;
  std::uint64_t last_file_bytes_ = 0;
  std::string refusal_;  // what dump() is told at once
};

}  // namespace gpumemtrace::capture
