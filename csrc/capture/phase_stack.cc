#include "capture/phase_stack.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>

#include "capture/names.h"
#include "capture/producer.h"

namespace gpumemtrace::capture {
namespace {

constexpr std::array<std::string_view, kWorkCount> kWorkNames = {
    "data", "forward", "eval", "backward", "optimizer", "zero_grad", "optimizer"};

constexpr std::size_t kMostCachedNames = 4096;

// 0 = no session yet; relaxed: a thread that sees it late belongs to the old session for a moment.
constinit std::atomic<std::uint64_t> g_generation{0};
constinit std::atomic<PhaseMode> g_mode{PhaseMode::kNone};

std::string_view name_of(Work work) { return kWorkNames[static_cast<std::size_t>(work)]; }

bool is_forward(Work work) { return work == Work::kForward || work == Work::kEval; }
bool is_optimizer(Work work) {
  return work == Work::kOptimizer || work == Work::kOptimizerWithClosure;
}

bool ends(Work told, Work going) {
  return told == going || (is_forward(told) && is_forward(going)) ||
         (is_optimizer(told) && is_optimizer(going));
}

// Whether `inner` can't happen within `outer`, which must be over then.
bool is_over(Work outer, Work inner) {
  if (is_forward(outer)) return inner == Work::kData;
  if (outer == Work::kOptimizer) return inner != Work::kZeroGrad && !is_optimizer(inner);
  return false;
}

// Whether `inner` is told apart from `outer`, within which it happens.
bool stands_out(Work inner, Work outer) {
  if (is_optimizer(outer)) return !is_optimizer(inner) && inner != Work::kData;  // LBFGS
  if (is_forward(outer)) return !is_forward(inner);  // a module that trains in its forward
  return false;
}

bool records_phases() noexcept {
  return active_ring() != nullptr && g_mode.load(std::memory_order_relaxed) != PhaseMode::kNone;
}

}  // namespace

void begin_phases(PhaseMode mode) {
  g_mode.store(mode, std::memory_order_relaxed);
  g_generation.fetch_add(1, std::memory_order_relaxed);
  if (mode == PhaseMode::kAuto) PhaseStack::of_this_thread().start();
}

PhaseStack& PhaseStack::of_this_thread() {
  thread_local PhaseStack stack;
  const std::uint64_t generation = g_generation.load(std::memory_order_relaxed);
  if (stack.generation_ != generation) stack.reset(generation);
  return stack;
}

void PhaseStack::reset(std::uint64_t generation) {
  generation_ = generation;
  levels_.assign(1, Level{});
  going_.clear();
  init_ = 0;
  worked_ = false;
  pushed_ = 0;
  last_children_ = {};
}

void PhaseStack::start() {
  init_ = child(0, "init");
  set_automatic(init_, true, true);
}

void PhaseStack::open(std::string_view name, std::uint64_t owner) {
  if (!records_phases()) return;
  const Level top = levels_.back();
  Level level;
  level.owner = owner;
  level.inside = child(top.inside, name);
  if (top.filler || (top.automatic == 0 && top.shown == top.inside)) {
    level.shown = level.inside;
  } else {
    level.shown = child(top.path(), name);
    // Work in progress stays around whatever happens within it.
    if (!going_.empty()) level.inside = level.shown;
  }
  levels_.push_back(level);
  push(level.shown, true);
}

void PhaseStack::close(std::uint64_t owner) {
  const auto level = std::find_if(levels_.rbegin(), levels_.rend() - 1, [owner](const Level& l) {
    return l.owner == owner && !l.closed;
  });
  if (level == levels_.rend() - 1) return;
  level->closed = true;
  if (!levels_.back().closed) return;
  while (levels_.back().closed) levels_.pop_back();
  if (!records_phases()) return;
  Level& top = levels_.back();
  if (worked_ && init_ != 0 && top.automatic == init_) {
    set_automatic(child(top.inside, Work::kData), true, true);
  } else {
    push(top.path(), false);
  }
}

bool PhaseStack::begin(Work work) {
  if (!records_phases()) return false;
  while (!going_.empty() && is_over(going_.back().work, work)) going_.pop_back();
  if (!going_.empty() && !stands_out(work, going_.back().work)) return false;
  worked_ = true;
  const Level& top = levels_.back();
  going_.push_back({work, levels_.size() - 1, top.automatic, top.filler});
  set_automatic(child(top.inside, work), false, true);
  return true;
}

void PhaseStack::end(Work work) {
  const auto last = std::find_if(going_.rbegin(), going_.rend(),
                                 [work](const Going& going) { return ends(work, going.work); });
  if (last == going_.rend()) return;
  const Going done = *last;
  going_.erase(last.base() - 1, going_.end());
  if (!records_phases() || done.level != levels_.size() - 1) return;
  if (work == Work::kZeroGrad) {
    set_automatic(done.automatic, done.filler, false);
  } else if (!going_.empty() && !is_forward(work)) {
    const Going& around = going_.back();
    const bool same_level = around.level == done.level;
    set_automatic(same_level ? child(levels_.back().inside, around.work) : 0, false, false);
  } else if (is_optimizer(work)) {
    set_automatic(child(levels_.back().inside, Work::kData), true, true);
  }
}

std::uint32_t PhaseStack::current() const noexcept { return levels_.back().path(); }

std::string PhaseStack::current_text() const {
  std::string text;
  for (auto name = names_.find(current()); name != names_.end();
       name = names_.find(name->second.parent)) {
    text = text.empty() ? name->second.text : name->second.text + '/' + text;
  }
  return text;
}

void PhaseStack::set_automatic(std::uint32_t path, bool filler, bool entered) {
  Level& top = levels_.back();
  top.filler = filler;
  if (top.automatic == path) return;
  top.automatic = path;
  push(top.path(), entered);
}

void PhaseStack::push(std::uint32_t path, bool entered) noexcept {
  if (path == pushed_ && !entered) return;
  Ring* ring = active_ring();
  if (ring == nullptr) return;
  Event event{};
  event.kind = Kind::kPhase;
  event.device = -1;
  event.size = path;
  if (entered) event.flags = kPhaseEntered;
  // A dropped one heals with the next, which carries the whole path again.
  if (gpumemtrace::capture::push(ring, event)) pushed_ = path;
}

std::uint32_t PhaseStack::child(std::uint32_t parent, std::string_view name) {
  const std::uint64_t key = std::hash<std::string_view>{}(name) ^ (std::uint64_t{parent} << 32);
  if (const auto found = children_.find(key); found != children_.end()) {
    for (const std::uint32_t id : found->second) {
      const Name& known = names_.at(id);
      if (known.parent == parent && known.text == name) return id;
    }
  }
  const std::uint32_t id = name_table().define_phase(parent, name);
  if (names_.size() < kMostCachedNames &&
      names_.emplace(id, Name{parent, std::string(name)}).second) {
    children_[key].push_back(id);
  }
  return id;
}

std::uint32_t PhaseStack::child(std::uint32_t parent, Work work) {
  LastChild& last = last_children_[static_cast<std::size_t>(work)];
  if (last.id == 0 || last.parent != parent) last = {parent, child(parent, name_of(work))};
  return last.id;
}

}  // namespace gpumemtrace::capture
