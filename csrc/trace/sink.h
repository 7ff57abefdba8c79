// Where the bytes of a trace go.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "trace/export.h"
#include "trace/guarded_descriptor.h"

namespace gpumemtrace {

// All bytes or an error: after the first `false` the sink is dead and stays so. One thread at a
// time. (Tests have twins in tests/native/sinks.h: one that counts writes, one that fails on purpose.)
class GPUMEMTRACE_API Sink {
 public:
  Sink() = default;
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;
  virtual ~Sink();

  virtual bool write(const void* data, std::size_t size_bytes) noexcept = 0;
  virtual bool close() noexcept = 0;
  // Of the file that it writes; -1 = none.
  virtual int descriptor() const noexcept { return -1; }
  // errno of the first failure; 0 = none.
  int error_number() const noexcept { return error_number_; }

 protected:
  // Keeps the first; returns false for the caller to pass on.
  bool fail(int error_number) noexcept;

 private:
  int error_number_ = 0;
};

// Bytes go to a vector, which must outlive the sink. Fails with ENOMEM.
class GPUMEMTRACE_API BufferSink final : public Sink {
 public:
  explicit BufferSink(std::vector<std::uint8_t>& bytes) : bytes_(bytes) {}
  ~BufferSink() override;

  bool write(const void* data, std::size_t size_bytes) noexcept override;
  bool close() noexcept override { return error_number() == 0; }

 private:
  std::vector<std::uint8_t>& bytes_;
};

// Bytes go to an open file, which it closes. A pipe that is full is waited for, a bounded time: then
// it fails with ETIMEDOUT; with GuardedDescriptor::kCutShort when a file has become shorter than what
// was written; with EBADF when the program has closed the descriptor, whatever its number
// stands for by now.
class GPUMEMTRACE_API DescriptorSink : public Sink {
 public:
  ~DescriptorSink() override;

  bool write(const void* data, std::size_t size_bytes) noexcept override;
  bool close() noexcept override;
  int descriptor() const noexcept override { return descriptor_.get(); }

 protected:
  explicit DescriptorSink(GuardedDescriptor descriptor) noexcept
      : descriptor_(std::move(descriptor)) {}

  GuardedDescriptor descriptor_;

 private:
  std::uint64_t written_bytes_ = 0;
};

// A file of its own. Made with the user's umask; never through a symbolic link; never in place of
// an existing file unless `overwrite`; a pipe that is there is written into. Nothing is fsync'ed: what
// was written survives the death of the process, not that of the machine.
class GPUMEMTRACE_API FileSink final : public DescriptorSink {
 public:
  // Throws std::system_error with errno when the file can't be made. `keep_from_children`: see
  // GuardedDescriptor.
  FileSink(const std::string& path, bool overwrite, bool keep_from_children = false);
};

}  // namespace gpumemtrace
