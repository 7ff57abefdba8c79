#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "capture/phase_stack.h"
#include "capture/producer_state.h"

namespace gpumemtrace::capture {
namespace {

// A session without a file: what is pushed is read back as text.
class Recording {
 public:
  explicit Recording(PhaseMode mode = PhaseMode::kAuto) {
    activate_ring(&ring_);
    begin_phases(mode);
    take();
  }
  ~Recording() { deactivate_ring(); }

  PhaseStack& stack() { return PhaseStack::of_this_thread(); }
  std::string path() { return stack().current_text(); }
  void work(Work work) {
    REQUIRE(stack().begin(work));
    stack().end(work);
  }
  std::vector<Event> take() {
    std::vector<Event> events(ring_.capacity());
    events.resize(ring_.pop(events.data(), events.size(), ring_.head()));
    return events;
  }
  // Entered (true) or resumed (false), one for each event since the last call.
  std::vector<bool> take_entries() {
    std::vector<bool> entries;
    for (const Event& event : take()) entries.push_back((event.flags & kPhaseEntered) != 0);
    return entries;
  }

 private:
  Ring ring_{{.capacity = 256}};
};

}  // namespace

TEST_CASE("automatic phases partition the time; zero_grad only interrupts") {
  Recording recording;
  CHECK(recording.path() == "init");
  recording.work(Work::kData);
  CHECK(recording.path() == "data");
  recording.work(Work::kForward);
  CHECK(recording.path() == "forward");
  recording.work(Work::kBackward);
  CHECK(recording.path() == "backward");
  CHECK(recording.stack().begin(Work::kZeroGrad));
  CHECK(recording.path() == "zero_grad");
  recording.stack().end(Work::kZeroGrad);
  CHECK(recording.path() == "backward");
  CHECK(recording.stack().begin(Work::kOptimizer));
  CHECK(recording.path() == "optimizer");
  recording.stack().end(Work::kOptimizer);
  CHECK(recording.path() == "data");
  CHECK(recording.take_entries() == std::vector<bool>{true, true, true, true, false, true, true});
}

TEST_CASE("a phase that is already there begins no second time") {
  Recording recording;
  recording.work(Work::kOptimizer);
  recording.take();
  recording.work(Work::kData);  // the filler after the step becomes real data
  recording.work(Work::kData);
  CHECK(recording.take().empty());
}

TEST_CASE("work within work belongs to it") {
  Recording recording;
  PhaseStack& stack = recording.stack();
  CHECK(stack.begin(Work::kBackward));
  CHECK_FALSE(stack.begin(Work::kForward));  // recomputation
  CHECK_FALSE(stack.begin(Work::kBackward));
  CHECK(recording.path() == "backward");
  stack.end(Work::kBackward);
  CHECK(stack.begin(Work::kData));
  CHECK_FALSE(stack.begin(Work::kEval));
  stack.end(Work::kData);
  CHECK(recording.path() == "data");
}

TEST_CASE("an optimizer's closure shows its phases, then the optimizer goes on") {
  Recording recording;
  PhaseStack& stack = recording.stack();
  CHECK(stack.begin(Work::kOptimizerWithClosure));
  for (int call = 0; call < 2; ++call) {
    recording.work(Work::kZeroGrad);
    CHECK(recording.path() == "optimizer");
    recording.work(Work::kForward);
    CHECK(recording.path() == "forward");
    recording.work(Work::kBackward);
    CHECK(recording.path() == "optimizer");
  }
  stack.open("closure", 1);
  recording.work(Work::kForward);
  CHECK(recording.path() == "optimizer/closure/forward");
  recording.work(Work::kBackward);
  CHECK(recording.path() == "optimizer/closure");
  stack.close(1);
  stack.end(Work::kOptimizer);
  CHECK(recording.path() == "data");
}

TEST_CASE("a step that threw is over when the next forward begins") {
  Recording recording;
  PhaseStack& stack = recording.stack();
  CHECK(stack.begin(Work::kOptimizer));
  CHECK_FALSE(stack.begin(Work::kOptimizer));  // or does it wrap another optimizer?
  CHECK(stack.begin(Work::kForward));
  stack.end(Work::kForward);
  CHECK(recording.path() == "forward");
  CHECK(stack.begin(Work::kOptimizer));
}

TEST_CASE("a module that trains within its forward") {
  Recording recording;
  PhaseStack& stack = recording.stack();
  CHECK(stack.begin(Work::kForward));
  recording.work(Work::kBackward);
  CHECK(recording.path() == "forward");
  recording.work(Work::kOptimizer);
  CHECK(recording.path() == "forward");
  stack.end(Work::kForward);
  CHECK(recording.path() == "forward");
}

TEST_CASE("a forward whose end was never told is over when data is loaded") {
  Recording recording;
  CHECK(recording.stack().begin(Work::kEval));
  recording.work(Work::kData);
  recording.work(Work::kForward);
  CHECK(recording.path() == "forward");
}

TEST_CASE("who tells of a forward's end need not know whether it was an eval") {
  Recording recording;
  CHECK(recording.stack().begin(Work::kEval));
  recording.stack().end(Work::kForward);
  CHECK(recording.stack().begin(Work::kForward));
}

TEST_CASE("the ends of work that is not going on are ignored") {
  Recording recording;
  recording.stack().end(Work::kForward);
  recording.stack().end(Work::kOptimizer);
  CHECK(recording.path() == "init");
}

TEST_CASE("the drawing of the header") {
  Recording recording;
  PhaseStack& stack = recording.stack();
  stack.open("train", 1);
  CHECK(recording.path() == "train");
  recording.work(Work::kData);
  CHECK(recording.path() == "train/data");
  CHECK(stack.begin(Work::kForward));
  CHECK(recording.path() == "train/forward");
  stack.open("attention", 2);
  CHECK(recording.path() == "train/forward/attention");
  stack.close(2);
  CHECK(recording.path() == "train/forward");
  stack.end(Work::kForward);
  CHECK(recording.path() == "train/forward");
  stack.open("loss", 3);
  CHECK(recording.path() == "train/forward/loss");
  recording.work(Work::kBackward);
  CHECK(recording.path() == "train/loss/backward");
  stack.close(3);
  CHECK(recording.path() == "train/forward");
  recording.work(Work::kOptimizer);
  CHECK(recording.path() == "train/data");
  stack.close(1);
  CHECK(recording.path() == "data");
}

TEST_CASE("phases by hand: nested, the same one twice, closed out of order") {
  Recording recording(PhaseMode::kManual);
  PhaseStack& stack = recording.stack();
  stack.open("a", 1);
  stack.open("a", 1);
  CHECK(recording.path() == "a/a");
  stack.open("b", 2);
  stack.close(1);
  CHECK(recording.path() == "a/a/b");  // the inner a ends when b has ended
  stack.close(2);
  CHECK(recording.path() == "a");
  stack.close(7);  // nobody's
  stack.close(1);
  CHECK(recording.path().empty());
  CHECK(recording.take_entries() == std::vector<bool>{true, true, true, false, false});
}

TEST_CASE("while nobody records nothing opens, and what is left over closes harmlessly") {
  PhaseStack& stack = PhaseStack::of_this_thread();
  stack.open("a", 1);
  CHECK_FALSE(stack.begin(Work::kForward));
  CHECK(stack.current() == 0);
  {
    Recording recording;
    recording.stack().close(1);
    recording.stack().open("b", 2);
    CHECK(recording.path() == "b");
  }
  Recording next(PhaseMode::kManual);
  CHECK(next.path().empty());  // what was open in the session before is forgotten
  next.stack().close(2);
  CHECK(next.take().empty());
}

TEST_CASE("mode none: not even the user's phases") {
  Recording recording(PhaseMode::kNone);
  recording.stack().open("a", 1);
  CHECK_FALSE(recording.stack().begin(Work::kForward));
  recording.stack().close(1);
  CHECK(recording.take().empty());
}

TEST_CASE("each thread has its own") {
  Recording recording;
  recording.stack().open("main", 1);
  recording.take();
  std::string in_thread;
  std::thread([&] {
    PhaseStack& stack = PhaseStack::of_this_thread();
    CHECK(stack.current() == 0);
    stack.open("prefetch", 2);
    in_thread = stack.current_text();
    stack.close(2);
    CHECK(stack.current() == 0);
  }).join();
  CHECK(in_thread == "prefetch");
  CHECK(recording.path() == "main");
  const std::vector<Event> events = recording.take();
  REQUIRE(events.size() == 2);
  CHECK(events[1].size == 0);  // nothing of its own any more: the process's phase holds
  CHECK(events[0].thread == events[1].thread);
}

TEST_CASE("more names than are cached") {
  Recording recording(PhaseMode::kManual);
  for (int i = 0; i < 5000; ++i) {
    recording.stack().open("name " + std::to_string(i), 1);
    recording.stack().close(1);
    recording.take();
  }
  recording.stack().open("name 17", 1);
  CHECK(recording.path() == "name 17");
}

}  // namespace gpumemtrace::capture
