#include "torch/site_source.h"

#include <atomic>

#include "capture/producer.h"
#include "capture/sites.h"
#include "torch/autograd_nodes.h"
#include "torch/python_stacks.h"

namespace gpumemtrace::hook {
namespace {

using capture::site_table;
using capture::t_site;

// All relaxed: an event more or less.
constinit std::atomic<bool> g_wants_modules{false};
constinit std::atomic<bool> g_wants_stacks{false};
constinit std::atomic<bool> g_takes_stacks{false};
constinit std::atomic<std::uint64_t> g_min_bytes{0};

std::uint32_t with_stack(std::uint64_t size_bytes) noexcept {
  const std::uint32_t module = t_site;
  const RunningNode node = module != 0 ? RunningNode{false, 0} : running_node();
  const std::uint32_t plain =
      module != 0 ? module : site_table().variant(node.site, StackState::kOff);
  if (size_bytes < g_min_bytes.load(std::memory_order_relaxed)) {
    return site_table().variant(plain, StackState::kTooSmall);
  }
  if (const std::uint32_t site = PythonStacks::instance().site_now(plain); site != 0) {
    claim_nodes(site);
    return site;
  }
  return node.is_one ? site_table().variant(node.site, StackState::kForward)
                     : site_table().variant(plain, StackState::kNoPython);
}

// A module that runs in a backward recomputes: it comes before the node that it runs in.
std::uint32_t site_now(Kind kind, std::uint64_t size_bytes) noexcept {
  if (g_takes_stacks.load(std::memory_order_relaxed) && kind != Kind::kFree) {
    return with_stack(size_bytes);
  }
  const std::uint32_t module = t_site;
  if (module != 0) return module;
  const std::uint32_t site = running_node().site;
  // Made while stacks were taken?
  return site != 0 && g_wants_stacks.load(std::memory_order_relaxed)
             ? site_table().variant(site, StackState::kOff)
             : site;
}

void ask() noexcept {
  const bool wanted = g_wants_modules.load(std::memory_order_relaxed) ||
                      g_wants_stacks.load(std::memory_order_relaxed);
  capture::g_site_source.store(wanted ? &site_now : nullptr, std::memory_order_release);
}

}  // namespace

void want_modules(bool wanted) noexcept {
  g_wants_modules.store(wanted, std::memory_order_relaxed);
  ask();
}

void want_stacks(bool wanted) noexcept {
  g_wants_stacks.store(wanted, std::memory_order_relaxed);
  if (!wanted) g_takes_stacks.store(false, std::memory_order_relaxed);
  ask();
}

void take_stacks(bool taken, std::uint64_t min_bytes) noexcept {
  // Without modules nobody has looked who makes nodes; this thread does from here on.
  if (taken && !g_wants_modules.load(std::memory_order_relaxed)) {
    skip_nodes();
    claim_nodes(0);
  }
  g_min_bytes.store(min_bytes, std::memory_order_relaxed);
  g_takes_stacks.store(taken, std::memory_order_relaxed);
}

}  // namespace gpumemtrace::hook
