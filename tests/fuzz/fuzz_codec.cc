// Any bytes as the payloads of both codecs, without the headers and checksums around them. Payloads
// of codec 2 chain: what the first leaves behind, the second builds on.
//
//   input   resolution u32   count u16   count of the second u16   size of the first u16   payloads
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "event_table.h"
#include "trace/byte_reader.h"
#include "trace/decoder.h"
#include "trace/format_error.h"
#include "trace/history_decoder.h"

using namespace gpumemtrace;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size_bytes) {
  ByteReader in(data, size_bytes, 0);
  if (size_bytes < 10) return -1;  // no use to the corpus
  const std::uint64_t resolution = std::uint64_t{in.load<std::uint32_t>("resolution")} + 1;
  const std::size_t counts[] = {in.load<std::uint16_t>("count") + std::size_t{1},
                                in.load<std::uint16_t>("count") + std::size_t{1}};
  const std::size_t first = std::min<std::size_t>(in.load<std::uint16_t>("size"), in.remaining());
  const std::size_t second = in.remaining() - first;
  const std::uint8_t* payload = in.take(in.remaining(), "payloads");
  EventTable table(std::max(counts[0], counts[1]));
  try {
    Decoder().decode({payload, first, 0}, counts[0], resolution, table.columns());
  } catch (const FormatError&) {
  }
  static HistoryDecoder history;  // 5 MiB: kept
  history.reset();
  try {
    history.decode({payload, first, 0}, counts[0], resolution, table.columns());
    history.decode({payload + first, second, first}, counts[1], resolution, table.columns());
  } catch (const FormatError&) {
  }
  return 0;
}
