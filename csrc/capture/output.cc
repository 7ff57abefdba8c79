#include "capture/output.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <new>
#include <system_error>
#include <utility>

namespace gpumemtrace::capture {
namespace {

constexpr std::size_t kMostEarlyEvents = 65'536;

bool is_regular(int descriptor) noexcept {
  struct stat status {};
  return descriptor >= 0 && ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
}

// Zeros where there is no file to be found again.
FileProgress identify(int descriptor) noexcept {
  struct stat status {};
  FileProgress file{};
  if (descriptor >= 0 && ::fstat(descriptor, &status) == 0) {
    file.device = status.st_dev;
    file.inode = status.st_ino;
  }
  return file;
}

FileProgress with_counts(FileProgress file, const Writer& writer) noexcept {
  file.first_sequence = writer.events_written();
  file.bytes = writer.bytes_written();
  return file;
}

}  // namespace

TraceOutput::TraceOutput(OutputOptions options) : options_(std::move(options)) {}

void TraceOutput::open() {
  WriterOptions options{.time_resolution_ns = options_.time_resolution_ns,
                        .events_per_keyframe = options_.events_per_keyframe,
                        .keeps_index = options_.is_file};
  if (options_.stage != nullptr) {
    options.stage = options_.stage;
    options.events_per_chunk = kStageEvents;
  }
  const std::uint64_t most_bytes = options_.max_disk_bytes;
  if (most_bytes != 0) options = ageing::Ageing::prepare(options, most_bytes);
  auto writer = std::make_unique<Writer>(options_.make_sink(), options);
  if (writer->error_number() != 0) {  // not even the preamble fitted
    throw std::system_error(writer->error_number(), std::generic_category());
  }
  // A device or a pipe takes no room.
  if (most_bytes != 0 && is_regular(writer->descriptor())) {
    ageing_ = std::make_unique<ageing::Ageing>(most_bytes, *writer);
  }
  writer_ = std::move(writer);
  if (options_.is_file && ageing_ == nullptr) {
    witness_ =
        GuardedDescriptor(::open(options_.path.c_str(), O_PATH | O_CLOEXEC | O_NOFOLLOW), true);
  }
  file_ = identify(witness());
  for (const std::string& json : early_metadata_) write_metadata(json);
  early_metadata_.clear();
}

void TraceOutput::open_or_warn() {
  if (failed() || is_open()) return;
  try {
    open();
  } catch (const std::system_error& error) {
    fail(error.code().message());
  }
}

void TraceOutput::write_metadata(std::string json) {
  if (failed()) return;
  if (!is_open()) {
    early_metadata_.push_back(std::move(json));
  } else {
    check(writer_->write_metadata(json.data(), json.size()));
  }
}

void TraceOutput::write_names(const std::string& json) {
  if (!failed() && is_open()) check(writer_->write_names(json.data(), json.size()));
}

void TraceOutput::keep_early(const Event* events, std::size_t count) {
  early_events_.insert(early_events_.end(), events, events + count);
  while (early_events_.size() > kMostEarlyEvents) {
    early_events_.pop_front();
    ++early_events_lost_;
  }
}

void TraceOutput::append_early() {
  std::vector<Event> events;
  if (early_events_lost_ != 0) {
    Event gap = gap_event({.events = early_events_lost_}, 0);
    gap.time = early_events_.front().time;
    events.push_back(gap);
  }
  events.insert(events.end(), early_events_.begin(), early_events_.end());
  early_events_ = {};
  append(events.data(), events.size());
}

void TraceOutput::append(const Event* events, std::size_t count) {
  if (failed() || count == 0) return;
  if (!is_open()) return keep_early(events, count);
  if (!early_events_.empty()) append_early();
  last_time_ns_ = static_cast<std::int64_t>(events[count - 1].time);
  const bool written =
      (writer_->room() >= count || writer_->flush()) && writer_->append(events, count);
  if (written) events_ += count;
  check(written);
}

std::span<Event> TraceOutput::place() {
  if (!is_open() || !early_events_.empty()) return {};
  if (writer_->room() == 0) flush();
  if (failed()) return {};
  return {writer_->free_stage(), writer_->room()};
}

bool TraceOutput::age() noexcept {
  if (ageing_ == nullptr || failed() || !ageing_->work(*writer_)) return false;
  smaller_ = with_counts(identify(ageing_->smaller()->descriptor()), *ageing_->smaller());
  return true;
}

void TraceOutput::replace() noexcept {
  const std::uint64_t events = writer_->events_written();
  ageing_->replace(writer_);
  aged_away_ += events - writer_->events_written();
  file_ = identify(witness());
  smaller_ = {};
}

void TraceOutput::describe_files(Progress& progress) const noexcept {
  progress.files[0] = with_counts(file_, *writer_);
  progress.files[1] = smaller_;
  progress.replacements = ageing_ ? ageing_->rounds() : 0;
  progress.staged = writer_->staged();
}

void TraceOutput::flush() {
  if (!failed() && is_open()) check(writer_->flush());
}

void TraceOutput::begin_keyframe() {
  if (is_open()) writer_->begin_keyframe();
}

void TraceOutput::check_still_there() {
  struct stat status {};
  if (failed() || witness() < 0 || fstat(witness(), &status) != 0) return;
  if (status.st_nlink == 0) fail("the file was deleted");
}

void TraceOutput::close(const std::string& footer_json) {
  if (!failed() && is_open()) check(writer_->close(footer_json.data(), footer_json.size()));
}

void TraceOutput::check(bool written) {
  if (written || failed()) return;
  check_still_there();  // of a file that is gone that is the reason, whatever became of it then
  if (!failed()) fail(why_it_failed());
}

std::string TraceOutput::why_it_failed() const {
  const int number = writer_->error_number();
  if (number == EBADF) return "the program has closed the descriptor of the file";
  if (number == GuardedDescriptor::kCutShort) return "something else has cut the file short";
  if (ageing_ != nullptr && number == EFBIG && !ageing_->why().empty()) {
    return "max_disk is reached, and older parts can't be summarised: " + ageing_->why();
  }
  if (number == ETIMEDOUT) return "whoever reads it takes nothing more";
  return number != 0 ? std::generic_category().message(number) : std::string(writer_->error());
}

void TraceOutput::fail(const std::string& what) noexcept {
  if (failed_) return;
  failed_ = true;
  if (is_open()) events_ = aged_away_ + writer_->events_written();
  try {
    error_ = what;
    char end[64];
    std::snprintf(end, sizeof end, "%.3f s (%llu events)", static_cast<double>(last_time_ns_) / 1e9,
                  static_cast<unsigned long long>(events_));
    options_.warn("gpumemtrace: can't write " + options_.path + ": " + what +
                  "; training continues; the trace ends at " + end + "\n");
  } catch (const std::bad_alloc&) {
    // Nobody can be told.
  }
}

}  // namespace gpumemtrace::capture
