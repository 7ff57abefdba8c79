// The memory of one session: ring, stage, progress, names. In shared memory where that can be had,
// so that the next reader finds what a killed process had not written yet; else private.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "capture/clock.h"
#include "capture/segment_layout.h"
#include "trace/event.h"
#include "trace/export.h"
#include "trace/guarded_descriptor.h"

namespace gpumemtrace::capture {

inline constexpr const char* kSharedMemoryFolder = "/dev/shm";
inline constexpr std::size_t kSegmentNameBytes = 44;  // "gpumemtrace-" and 32 hex digits

// What a name from outside must look like before it is used: no path, nothing but our own.
bool is_segment_name(const std::string& name) noexcept;

// Empty, or why `needed_bytes` are not to be taken from a file system with so many bytes free
// (`total_bytes` 0: without a limit). Most of it is left to the program: data loaders send their
// batches through the same memory.
std::string why_too_small(std::uint64_t total_bytes, std::uint64_t free_bytes,
                          std::uint64_t needed_bytes);

// Inode of the named segment of this process's own recording, 0 = there is none. It must not be
// opened again: closing any descriptor of it gives up the lock that says that we live.
std::uint64_t own_segment_inode() noexcept;

// A file without a name at first: a process that ends before its trace exists leaves nothing behind.
// One thread at a time.
class GPUMEMTRACE_API Segment {
 public:
  struct Options {
    std::size_t ring_capacity = 0;  // slots
    std::string folder = kSharedMemoryFolder;
  };

  // All memory is there and touched afterwards. Throws std::bad_alloc.
  explicit Segment(const Options& options);
  // Takes the name away, if there is one, and retires the memory.
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  // Empty = the memory is shared; else why not.
  const std::string& why_private() const noexcept { return why_private_; }
  const std::string& name() const noexcept { return name_; }

  void* ring_memory() const noexcept { return memory_ + kRingOffset; }
  Event* stage() const noexcept { return at<Event>(kStageOffset); }
  NamesPage* names() const noexcept { return at<NamesPage>(kNamesOffset); }
  void commit(const Progress& progress) const noexcept {
    at<ProgressLog>(kProgressOffset)->commit(progress);
  }

  // The trace has its file: from here on the segment can be found. `descriptor`: of that file. Does
  // nothing for private memory. Returns 0, or errno: then the segment can't be found.
  int give_name(std::uint64_t trace_id, int descriptor, std::uint64_t time_resolution_ns,
                const ClockPair& begin) noexcept;
  // Nothing is to be found in it from here on, even where its name can't be taken away.
  void remove_name() noexcept;

  // In a forked child: zeroed pages of its own, at the same place; the parent's are out of reach.
  void leave_to_parent() noexcept;

 private:
  template <class T>
  T* at(std::size_t offset) const noexcept {
    return reinterpret_cast<T*>(memory_ + offset);
  }
  // Each empty, or why not.
  std::string open_file(const std::string& folder);
  std::string map_shared(const std::string& folder);
  void map_private();
  void reserve();
  // Zeroed pages in place of all that was there: a late pointer still means something.
  void replace_by_zeros() noexcept;

  std::size_t ring_capacity_;
  std::size_t bytes_;
  std::string name_;
  std::string path_;
  std::string why_private_;
  unsigned char* memory_ = nullptr;
  GuardedDescriptor descriptor_;
  bool is_named_ = false;
};

}  // namespace gpumemtrace::capture
