// Which site made which autograd node.
//
// A thread numbers the nodes that it makes, upwards. So it is enough to note, whenever the site
// changes, up to which number the nodes were made by the site before:
//
//   forward    enter A      op op op     enter B      op         leave B      op      leave A
//   next node  7            7 8 9        10           10         11           11      12
//   claims     -> outer                  7..9 -> A               10 -> B              11 -> A
//
// Backward runs a node in whatever thread; find() tells by its number whose it is.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "trace/export.h"

namespace gpumemtrace::capture {

// Written by one thread, read by any. Half a MiB: of more changes than that the latest are known.
class GPUMEMTRACE_API ForwardLog {
 public:
  static constexpr std::uint64_t kCapacity = std::uint64_t{1} << 15;

  ForwardLog();
  ~ForwardLog();
  ForwardLog(const ForwardLog&) = delete;
  ForwardLog& operator=(const ForwardLog&) = delete;

  // --- its thread ---

  // Nodes from the last claim up to `next_node` (exclusive) were made by `site`. Does nothing when
  // there are none.
  void claim(std::uint64_t next_node, std::uint32_t site) noexcept;
  // Nodes up to `next_node` are nobody's: nobody looked.
  void skip_to(std::uint64_t next_node) noexcept { claim(next_node, 0); }

  // For another thread; nobody else may look meanwhile.
  void clear() noexcept;

  // --- any thread ---

  // Whose the node is; 0 = not known. A node of this thread that was made after the last claim is
  // not known yet.
  std::uint32_t find(std::uint64_t node) const noexcept;

 private:
  // Nodes from `first` on, up to the first of the next change.
  struct Change {
    std::atomic<std::uint64_t> first;
    std::atomic<std::uint32_t> site;
  };
  static std::size_t slot(std::uint64_t number) noexcept { return number & (kCapacity - 1); }

  std::unique_ptr<Change[]> changes_;
  // release (claim) -> acquire (find): changes before count_ and nodes before end_ are told.
  std::atomic<std::uint64_t> count_{0};
  std::atomic<std::uint64_t> end_{0};
  std::uint32_t last_site_ = 0;
};

}  // namespace gpumemtrace::capture
