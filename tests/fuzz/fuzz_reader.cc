// Any bytes as a trace file: once as they are, once with all checksums made right, so that the
// fuzzer gets past them.
#include <cstddef>
#include <cstdint>
#include <utility>

#include "read_everything.h"
#include "trace_bytes.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size_bytes) {
  gpumemtrace::Bytes bytes(data, data + size_bytes);
  gpumemtrace::read_everything(bytes);
  gpumemtrace::repair_checksums(bytes);
  gpumemtrace::read_everything(std::move(bytes));
  return 0;
}
