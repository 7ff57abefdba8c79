#include "capture/session.h"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "capture/drain.h"
#include "capture/flight_recorder.h"
#include "capture/flight_signals.h"
#include "capture/json.h"
#include "capture/leftovers.h"
#include "capture/names.h"
#include "capture/producer_state.h"
#include "capture/quiet_thread.h"
#include "capture/recovery.h"
#include "capture/sites.h"
#include "capture/threads.h"
#include "trace/guarded_descriptor.h"

namespace gpumemtrace::capture {
namespace {

// What one session owns. Used by the drain thread and by whoever holds State::mutex.
struct Recording {
  Recording(std::unique_ptr<Segment> memory, DrainOptions options, const ClockPair& begin)
      : segment(std::move(memory)),
        name_log(segment->names()),
        flight(options.flight),
        drain(with_memory(std::move(options)), begin) {}

  DrainOptions with_memory(DrainOptions options) {
    options.segment = segment.get();
    options.name_log = &name_log;
    options.output.stage = segment->stage();
    return options;
  }

  std::unique_ptr<Segment> segment;  // outlives the drain
  NameLog name_log;
  std::shared_ptr<FlightRecorder> flight;  // nullptr: none. Outlives the drain, which fills it.
  Drain drain;
  SessionStats fixed;  // path, ring_capacity, clock anchors
  std::chrono::milliseconds interval{5};
  std::thread thread;
  std::mutex mutex;
  std::condition_variable wake;
  bool stop = false;
  std::string footer_json;
};

struct State {
  std::mutex mutex;
  // One a session, never destroyed: a thread may hold a pointer to any of them. Those of sessions
  // that have ended lie in memory that was given back, a few hundred bytes each.
  std::vector<Ring*> rings;
  Recording* recording = nullptr;
  SessionStats last;
};

State& state() {
  static auto* the_state = new State;  // leaked: threads outlive static destructors
  return *the_state;
}

void warn_on_stderr(const std::string& line) {
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

// A signal would have ended the process: it may, once the flight recording is written.
void obey_signal(Recording& recording) {
  const int number = ending_signal();
  if (number == 0) return;
  recording.drain.write_before_end(name_of_signal(number));
  end_by_signal(number);
}

void run_drain(Recording& recording) {
  pthread_setname_np(pthread_self(), "gpumemtrace");
  std::unique_lock lock(recording.mutex);
  while (!recording.stop) {
    lock.unlock();
    const bool hurry = recording.drain.pass();
    if (recording.flight) obey_signal(recording);
    lock.lock();
    if (!hurry) {
      recording.wake.wait_for(lock, recording.interval, [&] { return recording.stop; });
    }
  }
  recording.drain.finish(recording.footer_json);
  if (const int number = ending_signal(); recording.flight && number != 0) end_by_signal(number);
}

// On a thread that takes no signal: beyond the limit of a file's size a write is one (SIGXFSZ).
void open_quietly(Drain& drain) {
  std::exception_ptr error;
  start_quiet_thread([&] {
    try {
      drain.open();
    } catch (...) {
      error = std::current_exception();
    }
  }).join();
  if (error) std::rethrow_exception(error);
}

std::size_t ring_capacity_of(std::uint64_t bytes) {
  const std::uint64_t slots = bytes / sizeof(Slot);
  if (slots < 64 || slots > (std::uint64_t{1} << 28)) {
    throw std::invalid_argument("ring_bytes must be between 4096 and 16 GiB");
  }
  return std::bit_floor(slots);
}

// What came to the last session's ring after its end belongs to nobody.
void count_late_events(const State& session) noexcept {
  if (session.rings.empty()) return;
  Ring& ring = *session.rings.back();
  add_skipped(ring.unread() + ring.take_loss().events);
}

Ring* make_ring(State& session, std::size_t capacity, const Segment& segment) {
  count_late_events(session);
  session.rings.reserve(session.rings.size() +
                        1);  // so that nothing can throw once the ring is there
  Ring* const ring = new Ring({.capacity = capacity, .memory = segment.ring_memory()});
  session.rings.push_back(ring);
  return ring;
}

std::string recovery_json(const Segment& segment) {
  JsonObject recovery;
  if (segment.why_private().empty()) {
    recovery.add("segment", segment.name());
  } else {
    recovery.add("unavailable", segment.why_private());
  }
  return JsonObject().add_raw("recovery", recovery.text()).text();
}

std::uint64_t wall_ns() noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(now.tv_nsec);
}

std::string clock_json(const SessionStats& stats) {
  const std::string_view source = g_counter_is_usable ? "cpu_counter" : "monotonic";
  return JsonObject()
      .add_raw("clock", JsonObject()
                            .add("source", source)
                            .add("begin_monotonic_ns", stats.begin_monotonic_ns)
                            .add("begin_wall_ns", stats.begin_wall_ns)
                            .text())
      .text();
}

SessionStats stats_of(const Recording& recording) {
  const DrainStats drained = recording.drain.stats();
  SessionStats stats = recording.fixed;
  stats.events = drained.events;
  stats.dropped = drained.dropped;
  stats.gaps = drained.gaps;
  stats.stalls = drained.stalls.count;
  stats.stalled_ns = drained.stalls.total_ns;
  stats.bytes_written = drained.bytes_written;
  stats.ring_high_water = drained.ring_high_water;
  stats.drain_cpu_ns = drained.cpu_ns;
  stats.error = drained.error;
  stats.file_created = drained.file_created;
  if (recording.flight) stats.flight_files = recording.flight->files();
  return stats;
}

// The child of a fork has neither the drain thread nor the ring's contents; file and segment are
// the parent's. The recording is leaked rather than destroyed: its destructor would touch that file.
void before_fork() {
  state().mutex.lock();
  thread_registry().lock();
  name_table().lock();
  site_table().lock();
}

void after_fork_in_parent() {
  site_table().unlock();
  name_table().unlock();
  thread_registry().unlock();
  state().mutex.unlock();
}

void after_fork_in_child() {
  forget_signals_after_fork();
  forget_producers_after_fork();
  forget_recovery_after_fork();
  thread_registry().forget_all_locked();
  name_table().forget_session_locked();
  if (state().recording != nullptr) state().recording->segment->leave_to_parent();
  close_guarded_in_child();
  state().recording = nullptr;
  state().last = {};
  state().rings.clear();
  after_fork_in_parent();
}

void begin_names(NameLog& log) {
  name_table().begin_session(&log);
  site_table().begin_session();
  thread_registry().set_log(&log);
}

void end_names() {
  name_table().end_session();
  thread_registry().set_log(nullptr);
}

SessionStats stop_locked(State& session, const std::string& footer_json) {
  Recording* recording = session.recording;
  if (recording == nullptr) return session.last;
  deactivate_ring();
  {
    const std::lock_guard guard(recording->mutex);
    recording->footer_json = footer_json;
    recording->stop = true;
  }
  recording->wake.notify_one();
  recording->thread.join();
  if (recording->flight) give_back_signals();
  session.recording = nullptr;
  session.last = stats_of(*recording);
  session.last.skipped = skipped_events();
  end_names();
  delete recording;
  return session.last;
}

// For programs that exit() without telling us. Gives way if somebody is starting or stopping.
void stop_at_exit() {
  State& session = state();
  if (!session.mutex.try_lock()) return;
  stop_locked(session, R"({"reason":"exit"})");
  session.mutex.unlock();
}

// Before the first lock is taken: a fork at any later moment must find the handlers.
void set_process_handlers() {
  static const bool set = [] {
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
    std::atexit(stop_at_exit);
    return true;
  }();
  static_cast<void>(set);
}

void fly(DrainOptions& drain, const SessionOptions& options) {
  const FlightWindowOptions window{.window_ns = options.flight_window_ms * 1'000'000U,
                                   .most_bytes = options.flight_bytes};
  drain.flight = std::make_shared<FlightRecorder>(
      FlightOptions{.window = window,
                    .path = options.path,
                    .overwrite = options.overwrite,
                    .time_resolution_ns = options.time_resolution_ns,
                    .announce = options.announce,
                    .warn = warn_on_stderr});
  drain.output.is_file = false;
  drain.output.make_sink = [flight = drain.flight] { return flight->make_sink(); };
  // Groups go whole: a few of them should fit, at 8 bytes an event, which few runs need.
  drain.output.events_per_keyframe =
      std::clamp<std::uint64_t>(options.flight_bytes / 64, 4096, drain.output.events_per_keyframe);
}

}  // namespace

void start_session(const SessionOptions& options) {
  set_process_handlers();
  State& session = state();
  const std::lock_guard guard(session.mutex);
  if (session.recording != nullptr) {
    throw std::logic_error("already recording to " + session.recording->fixed.path);
  }
  const auto to_ns = [](std::uint32_t ms) { return std::uint64_t{ms} * 1'000'000U; };
  DrainOptions drain;
  const std::size_t capacity = ring_capacity_of(options.ring_bytes);
  // A flight recorder has no file that what a killed process left could be added to.
  const std::string folder = options.flight_window_ms != 0 ? "" : options.shared_memory_folder;
  auto segment =
      std::make_unique<Segment>(Segment::Options{.ring_capacity = capacity, .folder = folder});
  Ring* ring = drain.ring = make_ring(session, capacity, *segment);
  ring->set_patience(to_ns(options.block_timeout_ms));
  drain.lazy = options.lazy;
  drain.drain_interval_ns = to_ns(std::max(options.drain_interval_ms, 1U));
  drain.flush_interval_ns = to_ns(options.flush_interval_ms);
  drain.device_sample_interval_ns = to_ns(options.device_sample_interval_ms);
  drain.output.path = options.path;
  drain.output.time_resolution_ns = options.time_resolution_ns;
  drain.output.max_disk_bytes = options.max_disk_bytes;
  drain.output.warn = warn_on_stderr;
  drain.output.make_sink = [path = options.path, overwrite = options.overwrite] {
    return std::make_unique<FileSink>(path, overwrite, true);
  };

  if (options.flight_window_ms != 0) fly(drain, options);

  const ClockPair begin = read_clock_pair();
  const std::string recovery = recovery_json(*segment);
  auto recording = std::make_unique<Recording>(std::move(segment), std::move(drain), begin);
  recording->interval = std::chrono::milliseconds(std::max(options.drain_interval_ms, 1U));
  recording->fixed.path = options.path;
  recording->fixed.ring_capacity = ring->capacity();
  recording->fixed.begin_monotonic_ns = begin.ns;
  recording->fixed.begin_wall_ns = wall_ns() - (monotonic_ns() - begin.ns);
  recording->drain.add_metadata(options.metadata_json);
  recording->drain.add_metadata(clock_json(recording->fixed));
  recording->drain.add_metadata(recovery);

  begin_names(recording->name_log);
  try {
    if (!options.lazy) open_quietly(recording->drain);
    recording->thread = start_quiet_thread([r = recording.get()] { run_drain(*r); });
  } catch (...) {
    end_names();
    throw;
  }
  session.recording = recording.release();
  if (session.recording->flight) take_signals();
  open_session(ring);
  start_collecting_leftovers(options.shared_memory_folder);
}

SessionStats stop_session(const std::string& footer_json) {
  State& session = state();
  const std::lock_guard guard(session.mutex);
  return stop_locked(session, footer_json);
}

SessionStats session_stats() {
  State& session = state();
  const std::lock_guard guard(session.mutex);
  SessionStats stats = session.recording != nullptr ? stats_of(*session.recording) : session.last;
  stats.skipped = skipped_events();
  return stats;
}

std::string dump_flight(const std::string& path, bool overwrite) {
  std::shared_ptr<FlightRecorder> flight;
  {
    State& session = state();
    const std::lock_guard guard(session.mutex);
    if (session.recording != nullptr) flight = session.recording->flight;
  }
  if (flight == nullptr) throw std::logic_error("no flight recording is going on");
  // Without the lock: a fork and the end of the session wait for it.
  const FlightFile file = flight->dump(path, overwrite);
  if (file.error_number != 0) {
    throw std::system_error(file.error_number, std::generic_category(), file.path);
  }
  if (!file.error.empty()) throw std::logic_error(file.error);
  return file.path;
}

bool session_active() noexcept { return active_ring() != nullptr; }

void add_metadata(const std::string& json) {
  State& session = state();
  const std::lock_guard guard(session.mutex);
  if (session.recording != nullptr) session.recording->drain.add_metadata(json);
}

std::uint32_t define_phase(std::uint32_t parent_id, std::string_view name) {
  return name_table().define_phase(parent_id, name);
}

std::uint32_t define_string(std::string_view text) { return name_table().define_string(text); }

}  // namespace gpumemtrace::capture
