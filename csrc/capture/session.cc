#include "capture/session.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "capture/drain.h"
#include "capture/json.h"
#include "capture/names.h"
#include "capture/producer_state.h"
#include "capture/sites.h"
#include "capture/threads.h"

namespace gpumemtrace::capture {
namespace {

// What one session owns. Used by the drain thread and by whoever holds State::mutex.
struct Recording {
  Recording(DrainOptions options, const ClockPair& begin) : drain(std::move(options), begin) {}

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
  std::vector<Ring*> rings;  // by size; reused, never unmapped
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

void run_drain(Recording& recording) {
  pthread_setname_np(pthread_self(), "gpumemtrace");
  std::unique_lock lock(recording.mutex);
  while (!recording.stop) {
    lock.unlock();
    const bool hurry = recording.drain.pass();
    lock.lock();
    if (!hurry) {
      recording.wake.wait_for(lock, recording.interval, [&] { return recording.stop; });
    }
  }
  recording.drain.finish(recording.footer_json);
}

// The drain thread takes no signal: handlers run where they would run without us.
std::thread start_thread(Recording& recording) {
  sigset_t all;
  sigset_t old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  try {
    std::thread thread([&recording] { run_drain(recording); });
    pthread_sigmask(SIG_SETMASK, &old, nullptr);
    return thread;
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &old, nullptr);
    throw;
  }
}

Ring* ring_of(State& session, std::uint64_t bytes) {
  const std::uint64_t slots = bytes / sizeof(Slot);
  if (slots < 64 || slots > (std::uint64_t{1} << 28)) {
    throw std::invalid_argument("ring_bytes must be between 4096 and 16 GiB");
  }
  const std::uint64_t capacity = std::bit_floor(slots);
  for (Ring* ring : session.rings) {
    if (ring->capacity() == capacity) return ring;
  }
  session.rings.push_back(new Ring({.capacity = capacity}));
  return session.rings.back();
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
  return stats;
}

// The child of a fork has neither the drain thread nor the ring's contents; the file is the
// parent's. The recording is leaked rather than destroyed: its destructor would touch that file.
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
  forget_producers_after_fork();
  thread_registry().forget_all_locked();
  state().recording = nullptr;
  state().last = {};
  state().rings.clear();
  after_fork_in_parent();
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
  session.recording = nullptr;
  session.last = stats_of(*recording);
  session.last.skipped = skipped_events();
  name_table().end_session();
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
  Ring* ring = drain.ring = ring_of(session, options.ring_bytes);
  ring->set_patience(to_ns(options.block_timeout_ms));
  drain.lazy = options.lazy;
  drain.drain_interval_ns = to_ns(std::max(options.drain_interval_ms, 1U));
  drain.flush_interval_ns = to_ns(options.flush_interval_ms);
  drain.device_sample_interval_ns = to_ns(options.device_sample_interval_ms);
  drain.output.path = options.path;
  drain.output.time_resolution_ns = options.time_resolution_ns;
  drain.output.warn = warn_on_stderr;
  drain.output.make_sink = [path = options.path, overwrite = options.overwrite] {
    return std::make_unique<FileSink>(path, overwrite);
  };

  const ClockPair begin = read_clock_pair();
  auto recording = std::make_unique<Recording>(std::move(drain), begin);
  recording->interval = std::chrono::milliseconds(std::max(options.drain_interval_ms, 1U));
  recording->fixed.path = options.path;
  recording->fixed.ring_capacity = ring->capacity();
  recording->fixed.begin_monotonic_ns = begin.ns;
  recording->fixed.begin_wall_ns = wall_ns() - (monotonic_ns() - begin.ns);
  recording->drain.add_metadata(options.metadata_json);
  recording->drain.add_metadata(clock_json(recording->fixed));
  if (!options.lazy) recording->drain.open();

  name_table().begin_session();
  site_table().begin_session();
  recording->thread = start_thread(*recording);
  session.recording = recording.release();
  activate_ring(ring);
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
