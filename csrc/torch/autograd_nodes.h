// Autograd's nodes, as far as sites need them: numbered in the forward, run in the backward.
//
// torch gives each node a number, counted up in each thread, and the number of that thread. It keeps
// both for profilers; nothing is added to the user's graph.
#pragma once

#include <cstdint>

namespace gpumemtrace::hook {

// Nodes that this thread has made since the last call, here or in skip_nodes(), were made by `site`
// (capture/forward_log.h).
void claim_nodes(std::uint32_t site) noexcept;

// Nobody has looked until now, in whatever thread: nodes made before are nobody's.
void skip_nodes() noexcept;

// The site that made the node that runs in this thread. 0: not known. AccumulateGrad, which no
// operator makes, belongs to the node that ran before it in this thread and gave it its gradient.
struct RunningNode {
  bool is_one;  // does a node run at all?
  std::uint32_t site;
};
RunningNode running_node() noexcept;

}  // namespace gpumemtrace::hook
