// Where the bytes of a trace come from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trace/export.h"
#include "trace/guarded_descriptor.h"

namespace gpumemtrace {

// Any thread; reads have no position of their own.
class GPUMEMTRACE_API Source {
 public:
  Source() = default;
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;
  virtual ~Source();

  // As it was when the source was made; a growing file is read up to there.
  virtual std::uint64_t size_bytes() const noexcept = 0;
  // Copies up to `size_bytes` bytes; fewer only where the file ends (or has shrunk). Throws
  // std::system_error when the system can't read.
  virtual std::size_t read(std::uint64_t offset, void* out, std::size_t size_bytes) const = 0;
};

// A regular file, by pread: one that shrinks while we read gives an error, not SIGBUS.
class GPUMEMTRACE_API FileSource final : public Source {
 public:
  // Throws std::system_error: no such file, no permission, a directory. `keep_from_children`: see
  // GuardedDescriptor.
  explicit FileSource(const std::string& path, bool keep_from_children = false);
  // Sees what the file has grown to. Not while another thread reads. Throws std::system_error; EBADF
  // when the program has closed the descriptor.
  void refresh();
  int descriptor() const noexcept { return descriptor_.get(); }
  ~FileSource() override;

  std::uint64_t size_bytes() const noexcept override { return size_bytes_; }
  std::size_t read(std::uint64_t offset, void* out, std::size_t size_bytes) const override;

 private:
  GuardedDescriptor descriptor_;
  std::uint64_t size_bytes_ = 0;
};

// Another source up to `offset`, then `tail`: a file as it would be if the tail could be written.
class GPUMEMTRACE_API SourceWithTail final : public Source {
 public:
  SourceWithTail(std::unique_ptr<Source> front, std::uint64_t offset,
                 std::vector<std::uint8_t> tail);
  ~SourceWithTail() override;

  std::uint64_t size_bytes() const noexcept override { return offset_ + tail_.size(); }
  std::size_t read(std::uint64_t offset, void* out, std::size_t size_bytes) const override;

 private:
  std::unique_ptr<Source> front_;
  std::uint64_t offset_;
  std::vector<std::uint8_t> tail_;
};

}  // namespace gpumemtrace
