// What encoding and decoding cost, without files and arrays of the caller's:
//
//   codec_cost TRACE...         events of trace files, in the chunks that they have there
//
// Prints one JSON object a line: per file, codec and time resolution the bytes per event, and ns of
// processor time per event, each chunk at its best of several runs.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <exception>
#include <memory>
#include <numeric>
#include <vector>

#include "trace/byte_reader.h"
#include "trace/decoder.h"
#include "trace/encoder.h"
#include "trace/event_buffer.h"
#include "trace/history_decoder.h"
#include "trace/history_encoder.h"
#include "trace/reader.h"

namespace {

using namespace gpumemtrace;

constexpr std::size_t kChunkEvents = 65536;
constexpr std::size_t kEnoughEvents = 1'000'000;
constexpr int kRuns = 12;

using Bytes = std::vector<std::uint8_t>;

// Repeats a short trace until there is enough to measure.
std::vector<Event> events_of(const char* path) {
  Reader reader(std::make_unique<FileSource>(path));
  EventBuffer buffer;
  const std::size_t chunks = reader.chunks().size();
  const auto count = static_cast<std::size_t>(reader.count(0, chunks));
  const EventColumns columns = buffer.columns(count);
  reader.read(0, chunks, columns);
  std::vector<Event> events;
  std::uint64_t offset = 0;
  while (count != 0 && events.size() < kEnoughEvents) {
    for (std::size_t i = 0; i < count; ++i) {
      events.push_back({static_cast<std::uint64_t>(columns.time_ns[i]) + offset, columns.address[i],
                        columns.size_bytes[i], columns.stream[i], columns.extra[i],
                        columns.thread[i], columns.site[i], columns.flags[i], columns.device[i],
                        static_cast<Kind>(columns.kind[i])});
    }
    offset = events.back().time + 1000;
  }
  return events;
}

// ns of this thread's processor time.
double now_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

// Each chunk's shortest time in several runs, summed up: what others do to the machine meanwhile
// seldom hits the same chunk every time.
class BestTimes {
 public:
  explicit BestTimes(std::size_t chunks) : best_ns_(chunks, 1e300) {}

  template <class Work>
  void measure(std::size_t chunk, Work work) {
    const double begin = now_ns();
    work();
    best_ns_[chunk] = std::min(best_ns_[chunk], now_ns() - begin);
  }
  double sum_ns() const { return std::accumulate(best_ns_.begin(), best_ns_.end(), 0.0); }

 private:
  std::vector<double> best_ns_;
};

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
  BestTimes encode_times(chunks.size());
  BestTimes decode_times(chunks.size());
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
      const std::vector<Event> events = events_of(argv[i]);
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
