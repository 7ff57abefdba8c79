// The file as the drain sees it: made early or late, and allowed to fail once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ageing/ageing.h"
#include "capture/segment_layout.h"
#include "trace/event.h"
#include "trace/guarded_descriptor.h"
#include "trace/sink.h"
#include "trace/writer.h"

namespace gpumemtrace::capture {

struct OutputOptions {
  // Where the bytes go; may throw std::system_error.
  std::function<std::unique_ptr<Sink>()> make_sink;
  std::string path;     // for messages, and to notice that somebody deleted the file
  bool is_file = true;  // false: make_sink's doesn't write to `path`
  std::uint64_t time_resolution_ns = 1;
  // Where events wait for their chunk (kStageEvents of them); nullptr: in the writer.
  Event* stage = nullptr;
  std::uint64_t events_per_keyframe = WriterOptions{}.events_per_keyframe;
  std::uint64_t max_disk_bytes = 0;  // 0 = no limit; else older parts are aged (ageing/ageing.h)
  // Hears of the first error, once. Training goes on, so nobody else is told.
  std::function<void(const std::string&)> warn;
};

// One thread at a time. After the first error everything is discarded: the trace ends there. Until
// open() nothing is written: metadata is kept whole, and of the events the latest 65,536, since only
// an allocator event makes the file worth having. Any call may throw std::bad_alloc, fail() none.
class TraceOutput {
 public:
  explicit TraceOutput(OutputOptions options);

  // Makes the file and writes the metadata kept. Throws std::system_error; open_or_warn() tells
  // warn instead. The events kept go out with the next append(), behind any names.
  void open();
  void open_or_warn();
  bool is_open() const noexcept { return writer_ != nullptr; }

  void write_metadata(std::string json);
  void write_names(const std::string& json);
  // Events before these go to the file first where the stage has no room for all: at the end of this
  // call either all of these are in the stage, or, when they are more than it holds, the last ones.
  void append(const Event* events, std::size_t count);
  // Where the next events may be made, to be given to append() without being copied: there is room
  // for some at least. A full stage goes to the file. Empty: it isn't open, or has failed.
  std::span<Event> place();
  void flush();
  // Does a share of what keeps the file below its limit; may flush. True: a smaller file is ready,
  // and describe_files() tells of both. It gets its place by replace(), before anything else is
  // written.
  bool age() noexcept;
  void replace() noexcept;
  void begin_keyframe();
  // The file was deleted (not merely renamed): the rest would go nowhere, so that is an error.
  void check_still_there();
  void close(const std::string& footer_json);

  // Records a failure from outside, such as memory running out in the drain.
  void fail(const std::string& what) noexcept;

  bool failed() const noexcept { return failed_; }
  const std::string& error() const noexcept { return error_; }
  // A second descriptor of the file, only to ask what it is; -1 = there is none.
  int witness() const noexcept { return ageing_ ? ageing_->descriptor() : witness_.get(); }
  // Where what is staged, and what comes next, will stand. The file is open.
  void describe_files(Progress& progress) const noexcept;
  // nullptr until the file is open.
  const Writer* writer() const noexcept { return writer_.get(); }

  // Events taken, those still waiting for a flush and those aged since included.
  std::uint64_t events() const noexcept { return events_; }
  // Of the file as it is now.
  std::uint64_t bytes_written() const noexcept { return writer_ ? writer_->bytes_written() : 0; }

 private:
  void check(bool written);
  std::string why_it_failed() const;
  void keep_early(const Event* events, std::size_t count);
  void append_early();

  OutputOptions options_;
  std::unique_ptr<Writer> writer_;
  GuardedDescriptor witness_;               // without a limit
  std::unique_ptr<ageing::Ageing> ageing_;  // with one
  FileProgress file_{};                     // that is written, without its counts
  FileProgress smaller_{};                  // that is about to take its place
  std::uint64_t aged_away_ = 0;             // events
  std::vector<std::string> early_metadata_;
  std::deque<Event> early_events_;
  std::uint64_t early_events_lost_ = 0;
  std::uint64_t events_ = 0;
  std::int64_t last_time_ns_ = 0;
  bool failed_ = false;
  std::string error_;
};

}  // namespace gpumemtrace::capture
