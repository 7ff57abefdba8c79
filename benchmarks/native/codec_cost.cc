// What encoding and decoding cost, without files and arrays of the caller's:
//
//   codec_cost TRACE...         events of trace files, in the chunks that they have there
//
// Prints one JSON object a line: per file, codec and time resolution the bytes per event, and ns of
// processor time per event, each chunk at its best of several runs.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <vector>

#include "recording.h"
#include "trace/byte_reader.h"
#include "trace/decoder.h"
#include "trace/encoder.h"
#include "trace/event_buffer.h"
#include "trace/history_decoder.h"
#include "trace/history_encoder.h"

namespace {

using namespace gpumemtrace;

constexpr std::size_t kChunkEvents = 65536;
constexpr std::size_t kEnoughEvents = 1'000'000;
constexpr int kRuns = 12;

using Bytes = std::vector<std::uint8_t>;

template <class AnEncoder, class ADecoder>
void measure(const char* path, int codec, const std::vector<Event>& events,
             std::uint64_t resolution_ns) {
  std::vector<Bytes> chunks((events.size() + kChunkEvents - 1) / kChunkEvents);
  const auto count_of = [&](std::size_t chunk) {
    return std::min(kChunkEvents, events.size() - chunk * kChunkEvents);
  };
  AnEncoder encoder;
  ADecoder decoder;
  const auto restart = [](auto& coder) {
    if constexpr (requires { coder.reset(); }) coder.reset();
  };
  BestTimes encode_times;
  BestTimes decode_times;
  EventBuffer buffer;
  for (int run = 0; run < kRuns; ++run) {
    restart(encoder);
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      chunks[i].clear();
      encode_times.measure(i, [&] {
        encoder.encode(events.data() + i * kChunkEvents, count_of(i), resolution_ns, chunks[i]);
      });
    }
    restart(decoder);
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      const EventColumns out = buffer.columns(count_of(i));
      decode_times.measure(i, [&] {
        decoder.decode({chunks[i].data(), chunks[i].size(), 0}, count_of(i), resolution_ns, out);
      });
    }
  }
  const auto count = static_cast<double>(events.size());
  std::size_t bytes = 0;
  for (const Bytes& chunk : chunks) bytes += chunk.size();
  std::printf(
      "{\"trace\": \"%s\", \"codec\": %d, \"resolution_ns\": %llu, \"bytes_per_event\": %.3f, "
      "\"encode_ns\": %.1f, \"decode_ns\": %.1f}\n",
      path, codec, static_cast<unsigned long long>(resolution_ns),
      static_cast<double>(bytes) / count, encode_times.sum_ns() / count,
      decode_times.sum_ns() / count);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    for (int i = 1; i < argc; ++i) {
      const std::vector<Event> events = events_of(argv[i], kEnoughEvents);
      for (const std::uint64_t resolution_ns : {1ULL, 100ULL, 1000ULL}) {
        measure<Encoder, Decoder>(argv[i], 1, events, resolution_ns);
        measure<HistoryEncoder, HistoryDecoder>(argv[i], 2, events, resolution_ns);
      }
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "codec_cost: %s\n", error.what());
    return 1;
  }
}
