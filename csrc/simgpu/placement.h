// Where the driver puts device memory: the address rules of cudaMalloc, as recorded on an H200
// (driver 580.159, CUDA 13.0; tests/data/cudamalloc_h200_*.txt). PyTorch's best fit breaks ties by
// address, so the order of addresses is part of an exact simulation.
//
//            top - 512 MiB            top - 98 MiB      top - 24 MiB    top - 2 MiB
//   ...[slab][slab]|   not ours    [2 MiB hole]    [22 MiB hole          ]| top
//      <- grows down                   \___ what the context left free ___/
//
// - A request above 1 MiB is rounded up to 2 MiB. It goes to the lowest address where it fits into
//   the free part of a region that exists: one of the two holes, or the free tail of a slab.
// - Else a new slab, the request rounded up to 32 MiB, right below the lowest one; the request lies
//   at its start.
// - A slab whose last piece is freed goes back. A gap between slabs stays unused while there is
//   room below: new slabs go below the lowest one that lives.
// - Requests up to 1 MiB share 2 MiB chunks, in steps of 512 bytes.
//
// No locks and no memory access: addresses only. The caller serialises.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "ranges.h"

namespace simgpu {

inline constexpr uint64_t kPage = uint64_t{2} << 20;        // what physical memory comes in
inline constexpr uint64_t kSlab = uint64_t{32} << 20;       // what address space comes in
inline constexpr uint64_t kSmallest = 512;                  // alignment of small requests
inline constexpr uint64_t kSmallLimit = uint64_t{1} << 20;  // largest request that shares a page

class Placement {
 public:
  struct Piece {
    uint64_t address = 0;  // 0: no address space left
    uint64_t used = 0;     // device memory that it newly takes (0 when it shares a page)
  };

  // `top` is a multiple of 32 MiB; addresses from `bottom` to `top` may be handed out.
  Placement(uint64_t bottom, uint64_t top);

  // `bytes` > 0.
  Piece allocate(uint64_t bytes);

  // Device memory that comes free with it, or kUnknown when nothing was allocated there.
  uint64_t free(uint64_t address);
  static constexpr uint64_t kUnknown = ~uint64_t{0};

 private:
  struct Region {
    uint64_t size = 0;
    bool permanent = false;  // what the context left: never goes back
    RangeSet free;
  };
  using Regions = std::map<uint64_t, Region>;  // by start

  uint64_t allocate_pages(uint64_t bytes);
  void free_pages(uint64_t address, uint64_t bytes);
  uint64_t add_slab(uint64_t bytes);
  Piece allocate_small(uint64_t bytes);

  uint64_t bottom_;
  uint64_t first_slab_end_;
  Regions regions_;
  Regions chunks_;                     // 2 MiB each, cut into small pieces
  std::map<uint64_t, uint64_t> live_;  // address -> rounded size
};

}  // namespace simgpu
