#include "capture/session.h"

#include <chrono>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "capture/producer_state.h"

namespace gpumemtrace::capture {
namespace {

struct State {
  std::mutex mutex;
  Ring* ring = nullptr;
  std::thread drain;
  std::atomic<bool> stop{false};
  bool active = false;
  SessionStats stats;
};

State& state() {
  static auto* the_state = new State;  // leaked: the drain thread outlives static destructors
  return *the_state;
}

void drain(State& session, std::chrono::milliseconds interval) {
  std::vector<Event> batch(1024);
  for (bool last = false; !last;) {
    last = session.stop.load();
    while (const std::size_t count =
               session.ring->pop(batch.data(), batch.size(), session.ring->head())) {
      session.stats.events += count;
    }
    if (!last) std::this_thread::sleep_for(interval);
  }
}

}  // namespace

void start_session(const SessionOptions& options) {
  State& session = state();
  const std::lock_guard guard(session.mutex);
  if (session.active) throw std::logic_error("a session is active already: " + session.stats.path);
  if (session.ring == nullptr) session.ring = new Ring({options.ring_bytes / sizeof(Slot), 0, 0});
  session.stats = {};
  session.stats.path = options.path;
  session.stop = false;
  session.drain = std::thread([&session, interval = options.drain_interval_ms] {
    drain(session, std::chrono::milliseconds(interval));
  });
  session.active = true;
  activate_ring(session.ring);
}

SessionStats stop_session(const std::string&) {
  State& session = state();
  const std::lock_guard guard(session.mutex);
  if (session.active) {
    deactivate_ring();
    session.stop = true;
    session.drain.join();
    session.active = false;
    session.stats.dropped += session.ring->take_loss().events;
  }
  return session.stats;
}

SessionStats session_stats() {
  const std::lock_guard guard(state().mutex);
  return state().stats;
}

bool session_active() noexcept { return active_ring() != nullptr; }

}  // namespace gpumemtrace::capture
