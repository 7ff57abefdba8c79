#include "capture/flight_recorder.h"

#include <algorithm>
#include <cerrno>
#include <exception>
#include <system_error>
#include <utility>

#include "capture/flight_signals.h"
#include "capture/json.h"
#include "trace/writer.h"

namespace gpumemtrace::capture {
namespace {

constexpr const char* kSuffix = ".gmt";
constexpr int kMostNumbers = 100'000;
constexpr std::int64_t kGroupsPerWindow = 16;

std::string without_suffix(const std::string& path) {
  return path.ends_with(kSuffix) ? path.substr(0, path.size() - std::string(kSuffix).size()) : path;
}

}  // namespace

FlightRecorder::FlightRecorder(FlightOptions options)
    : options_(std::move(options)), window_(options_.window) {}

std::int64_t FlightRecorder::group_ns() const noexcept {
  return static_cast<std::int64_t>(options_.window.window_ns) / kGroupsPerWindow;
}

FlightFile FlightRecorder::dump(const std::string& path, bool overwrite) {
  Request request{path, overwrite, false, {}};
  std::unique_lock lock(mutex_);
  if (!refusal_.empty()) return {path, refusal_, 0, 0};
  requests_.push_back(&request);
  served_.wait(lock, [&] { return request.done; });
  return request.file;
}

std::vector<std::string> FlightRecorder::files() const {
  const std::lock_guard guard(mutex_);
  return files_;
}

std::uint64_t FlightRecorder::last_file_bytes() const {
  const std::lock_guard guard(mutex_);
  return last_file_bytes_;
}

bool FlightRecorder::begin_pass(std::uint64_t now_ns) {
  // Programs that try out sizes fail by the hundred: the first within a window has to do.
  if (std::exchange(oom_seen_, false) && now_ns >= next_oom_file_ns_ &&
      oom_files_ < kMostOomFiles) {
    next_oom_file_ns_ = now_ns + options_.window.window_ns;
    oom_is_due_ = true;
  }
  if (take_dump_signal()) signal_asks_ = true;
  take_requests("");
  return oom_is_due_ || signal_asks_ || !taken_.empty();
}

void FlightRecorder::write_wanted(const Footer& footer) {
  if (std::exchange(oom_is_due_, false)) {
    ++oom_files_;
    announce("out of memory", "oom", write_named("oom", footer));
  }
  if (std::exchange(signal_asks_, false)) {
    announce("SIGUSR2", "summary", write_named("sigusr2", footer));
  }
  serve(std::exchange(taken_, {}), footer);
}

void FlightRecorder::serve(const std::vector<Request*>& requests, const Footer& footer) {
  for (Request* request : requests) {
    FlightFile file = request->path.empty()
                          ? write_named("dump", footer)
                          : write_file(request->path, request->overwrite, "dump", footer("dump"));
    answer(*request, std::move(file));
  }
}

void FlightRecorder::answer(Request& request, FlightFile file) {
  const std::lock_guard guard(mutex_);
  request.file = std::move(file);
  request.done = true;  // the waiting thread takes it away with it
  served_.notify_all();
}

void FlightRecorder::take_requests(const std::string& refusal) {
  const std::lock_guard guard(mutex_);
  refusal_ = refusal;
  taken_.insert(taken_.end(), requests_.begin(), requests_.end());
  requests_.clear();
}

void FlightRecorder::refuse(const std::string& why, bool for_good) {
  take_requests(for_good ? why : "");
  oom_is_due_ = signal_asks_ = false;
  for (Request* request : std::exchange(taken_, {})) answer(*request, {request->path, why, 0, 0});
}

FlightFile FlightRecorder::write_last(const std::string& trigger, const std::string& footer_json) {
  FlightFile file = write_file(options_.path, options_.overwrite, trigger, footer_json);
  for (int number = 1; file.error_number == EEXIST && number < kMostNumbers; ++number) {
    const std::string path = without_suffix(options_.path) + '.' + std::to_string(number) + kSuffix;
    file = write_file(path, false, trigger, footer_json);
  }
  take_requests("the session has ended");
  serve(std::exchange(taken_, {}), [&](const std::string&) { return footer_json; });
  if (ending_signal() != 0) announce(trigger, "summary", file);
  return file;
}

FlightFile FlightRecorder::write_named(const std::string& trigger, const Footer& footer) {
  const std::string footer_json = footer(trigger);
  FlightFile file;
  for (int number = 1; number < kMostNumbers; ++number) {
    const std::string path =
        without_suffix(options_.path) + '.' + trigger + '-' + std::to_string(number) + kSuffix;
    file = write_file(path, false, trigger, footer_json);
    if (file.error_number != EEXIST) break;
  }
  return file;
}

// What can't be written whole stays as far as it went: a reader takes that.
FlightFile FlightRecorder::write_file(const std::string& path, bool overwrite,
                                      const std::string& trigger, const std::string& footer_json) {
  FlightFile file{path, "", 0, 0};
  try {
    Writer writer(std::make_unique<FileSink>(path, overwrite),
                  {.time_resolution_ns = options_.time_resolution_ns});
    const std::string about = "\"window_ns\":" + std::to_string(options_.window.window_ns) +
                              ",\"trigger\":\"" + trigger + '"';
    if (!window_.write_to(writer, about) || !writer.close(footer_json.data(), footer_json.size())) {
      file.error_number = writer.error_number();
      file.error = file.error_number != 0 ? std::generic_category().message(file.error_number)
                                          : writer.error();
    }
    file.bytes = writer.bytes_written();
    const std::lock_guard guard(mutex_);
    std::erase(files_, path);  // a program may write the same one again and again
    files_.push_back(path);
    last_file_bytes_ = file.bytes;
  } catch (const std::system_error& error) {
    file.error_number = error.code().value();
    file.error = error.code().message();
  } catch (const std::exception& error) {
    file.error = error.what();
  }
  if (!file.error.empty() && file.error_number != EEXIST) {
    options_.warn("gpumemtrace: can't write " + path + ": " + file.error +
                  "; the flight recording goes on\n");
  }
  return file;
}

void FlightRecorder::announce(const std::string& why, const std::string& command,
                              const FlightFile& file) {
  if (!options_.announce || !file.error.empty()) return;
  options_.warn("gpumemtrace: " + why + ": wrote " + file.path + "; next: gpumemtrace " + command +
                " " + file.path + "\n");
}

}  // namespace gpumemtrace::capture
