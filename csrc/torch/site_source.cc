#include "torch/site_source.h"

#include "capture/producer.h"
#include "torch/autograd_nodes.h"

namespace gpumemtrace::hook {

// A module that runs in a backward recomputes: it comes before the node that it runs in.
std::uint32_t site_now(Kind /*kind*/, std::uint64_t /*size_bytes*/) noexcept {
  const std::uint32_t site = capture::t_site;
  return site != 0 ? site : running_node().site;
}

}  // namespace gpumemtrace::hook
