// Any events through each codec and back, in two chunks: what comes out is what went in.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "event_table.h"
#include "fuzz_events.h"
#include "trace/byte_reader.h"
#include "trace/decoder.h"
#include "trace/encoder.h"
#include "trace/history_decoder.h"
#include "trace/history_encoder.h"

using namespace gpumemtrace;

namespace {

template <class Encode, class Decode>
void check(Encode& encoder, Decode& decoder, const Event* events, std::size_t count) {
  if (count == 0) return;
  std::vector<std::uint8_t> payload;
  encoder.encode(events, count, 1, payload);
  EventTable table(count);
  decoder.decode({payload.data(), payload.size(), 0}, count, 1, table.columns());
  for (std::size_t i = 0; i < count; ++i) {
    if (!same(table[i], events[i])) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size_bytes) {
  const std::vector<Event> events = events_of(data, size_bytes);
  const std::size_t first = events.size() / 2;
  Encoder columns;
  Decoder from_columns;
  static HistoryEncoder history;  // megabytes: kept
  static HistoryDecoder from_history;
  history.reset();
  from_history.reset();
  for (const auto& [begin, end] : {std::pair{std::size_t{0}, first}, {first, events.size()}}) {
    check(columns, from_columns, events.data() + begin, end - begin);
    check(history, from_history, events.data() + begin, end - begin);
  }
  return 0;
}
