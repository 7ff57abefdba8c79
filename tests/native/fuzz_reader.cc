// Any bytes as a trace file: once as they are, once with all checksums made right, so that the
// fuzzer gets past them.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "event_table.h"
#include "sources.h"
#include "trace/format_error.h"
#include "trace/reader.h"
#include "trace_bytes.h"

namespace gpumemtrace {
namespace {

constexpr std::uint64_t kEnoughEvents = 100'000;  // a few bytes may claim a million

void read_everything(Bytes bytes) {
  try {
    Reader reader(std::make_unique<MemorySource>(std::move(bytes)));
    for (std::size_t i = 0; i < reader.chunks().size(); ++i) {
      const std::uint64_t count = reader.count(i, i + 1);
      if (count > kEnoughEvents) continue;
      EventTable table(static_cast<std::size_t>(count));
      reader.read(i, i + 1, table.columns());
    }
  } catch (const FormatError&) {
  }
}

}  // namespace
}  // namespace gpumemtrace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size_bytes) {
  gpumemtrace::Bytes bytes(data, data + size_bytes);
  gpumemtrace::read_everything(bytes);
  gpumemtrace::repair_checksums(bytes);
  gpumemtrace::read_everything(std::move(bytes));
  return 0;
}
