// Any bytes as a trace file, all of it read: what no file may do is crash the reader.
#pragma once

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

inline void read_everything(Bytes bytes) {
  constexpr std::uint64_t kEnoughEvents = 100'000;  // a few bytes may claim a million
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

}  // namespace gpumemtrace
