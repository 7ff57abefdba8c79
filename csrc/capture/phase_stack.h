// Which phase each thread is in: phases opened by the user, and automatic ones.
//
// Automatic phases partition a thread's time: each lasts until the next one begins. The user's
// phases nest, around and inside. So a thread has a stack of levels, one for the thread itself and
// one for each open phase of the user, and each level holds at most one automatic phase:
//
//   calls                              path afterwards
//   start                              init
//   open(train)                        train                  a filler (init, data after a step)
//   begin(data), end                   train/data             never stands around anything
//   begin(forward)                     train/forward
//     open(attention)                  train/forward/attention
//     close                            train/forward
//   end(forward)                       train/forward          lasts: the loss belongs to it
//   open(loss)                         train/forward/loss
//     begin(backward), end             train/loss/backward    the next one begins: forward is over
//   close                              train/forward
//   begin(optimizer), end              train/data             a step has ended (filler)
//   close                              data
//
// Every change becomes one kPhase event with the number of the whole path.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trace/export.h"

namespace gpumemtrace::capture {

// What the automatic phases are made of; the names are in phase_stack.cc.
enum class Work : std::uint8_t {
  kData,
  kForward,
  kEval,
  kBackward,
  kOptimizer,
  kZeroGrad,
  kOptimizerWithClosure,  // which may do all of the others; shown as kOptimizer
};
inline constexpr std::size_t kWorkCount = 7;

enum class PhaseMode : std::uint8_t {
  kNone,    // nothing is recorded, not even what the user opens
  kManual,  // what the user opens
  kAuto,    // also automatic phases: this thread starts in `init`
};

// A session has begun: every thread forgets what was open before.
GPUMEMTRACE_API void begin_phases(PhaseMode mode);

class PhaseStack {
 public:
  // Ready for the session that records now. Only this thread may use it.
  GPUMEMTRACE_API static PhaseStack& of_this_thread();

  // Opens a phase of the user's. `owner` finds it again: a number no other opener has.
  // While nobody records, all of these do nothing. They throw std::bad_alloc, nothing else.
  GPUMEMTRACE_API void open(std::string_view name, std::uint64_t owner);

  // Closes the latest phase that `owner` opened in this thread; none: nothing happens. Out of order
  // (a generator kept open): it ends when everything opened after it has ended.
  GPUMEMTRACE_API void close(std::uint64_t owner);

  // Automatic work begins. False: it is part of what is going on (a module within a forward, the
  // recomputation within a backward); then there is no end() to call. Work within which this can't
  // happen is over: it threw, and nobody told.
  GPUMEMTRACE_API bool begin(Work work);

  // It returned or threw (kForward ends kEval too, and so for the two kinds of kOptimizer).
  // zero_grad: what was before goes on. optimizer: the step is over, `data`. The others last until
  // something else begins, unless they happened within other work (the backward in an optimizer's
  // closure), which then goes on.
  GPUMEMTRACE_API void end(Work work);

  // 0 = none.
  GPUMEMTRACE_API std::uint32_t current() const noexcept;
  // "train/forward"; empty when none.
  GPUMEMTRACE_API std::string current_text() const;

 private:
  friend void begin_phases(PhaseMode mode);

  struct Level {
    std::uint32_t shown = 0;      // path while no automatic phase has begun in this level
    std::uint32_t inside = 0;     // automatic phases of this level are named below this
    std::uint32_t automatic = 0;  // path of the automatic phase; 0 = none yet
    bool filler = false;          // it only fills: `init`, or `data` after a step
    bool closed = false;
    std::uint64_t owner = 0;

    std::uint32_t path() const noexcept { return automatic != 0 ? automatic : shown; }
  };
  struct Going {
    Work work;
    std::size_t level;
    std::uint32_t automatic;  // what was before
    bool filler;
  };
  struct Name {
    std::uint32_t parent;
    std::string text;
  };

  void reset(std::uint64_t generation);
  void start();
  std::uint32_t child(std::uint32_t parent, std::string_view name);
  std::uint32_t child(std::uint32_t parent, Work work);
  void set_automatic(std::uint32_t path, bool filler, bool entered);
  void push(std::uint32_t path, bool entered) noexcept;

  std::uint64_t generation_ = 0;
  std::vector<Level> levels_{Level{}};
  std::vector<Going> going_;
  std::uint32_t init_ = 0;
  bool worked_ = false;  // some automatic work has begun: init is over
  std::uint32_t pushed_ = 0;

  // Path numbers this thread has used, so that the shared table's lock is taken once a name.
  std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> children_;
  std::unordered_map<std::uint32_t, Name> names_;
  // The last one asked for of each kind of work: nearly always the next one, too.
  struct LastChild {
    std::uint32_t parent = 0;
    std::uint32_t id = 0;  // 0: none yet
  };
  std::array<LastChild, kWorkCount> last_children_{};
};

}  // namespace gpumemtrace::capture
