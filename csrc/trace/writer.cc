#include "trace/writer.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <new>
#include <stdexcept>
#include <utility>

#include "trace/crc32c.h"
#include "trace/time_units.h"

namespace gpumemtrace {
namespace {

// Events that stay in the nearest cache until they are encoded, too.
constexpr std::size_t kStagedAtOnce = 256;

// Tells the chunks of two files apart; need not be secret, only rarely the same.
std::uint64_t random_trace_id() noexcept {
  std::uint64_t id = 0;
  if (::getrandom(&id, sizeof id, GRND_NONBLOCK) != sizeof id) {
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    id = static_cast<std::uint64_t>(now.tv_nsec) << 32 ^ static_cast<std::uint64_t>(::getpid());
  }
  return id != 0 ? id : 1;
}

}  // namespace

Writer::Writer(std::unique_ptr<Sink> sink, WriterOptions options)
    : sink_(std::move(sink)), options_(options) {
  check_options();
  Preamble preamble{{}, kVersionMajor, kVersionMinor, 0};
  std::memcpy(preamble.magic, kFileMagic, sizeof kFileMagic);
  preamble.crc = crc32c(&preamble, offsetof(Preamble, crc));
  write(&preamble, sizeof preamble);  // first of all: a process killed here leaves a trace
  prepare();
}

Writer::Writer(std::unique_ptr<Sink> sink, WriterOptions options, const WrittenBefore& before)
    : sink_(std::move(sink)),
      options_(options),
      chunks_written_(before.next_chunk_number),
      events_written_(before.events),
      bytes_written_(before.bytes) {
  check_options();
  prepare();
  for (const ChunkInfo& chunk : before.chunks) index_.append(chunk);
}

void Writer::check_options() {
  if (options_.time_resolution_ns < 1 || options_.time_resolution_ns > INT64_MAX) {
    throw std::invalid_argument("time_resolution_ns must be 1 or more");
  }
  if (options_.events_per_chunk < 1 || options_.events_per_chunk > kMaxEventsPerChunk) {
    throw std::invalid_argument("events_per_chunk must be between 1 and 1048576");
  }
  if (options_.events_per_keyframe < 1 || options_.bytes_per_keyframe < 1) {
    throw std::invalid_argument("events and bytes per keyframe must be 1 or more");
  }
  if (options_.codec != Codec::kColumns && options_.codec != Codec::kHistory) {
    throw std::invalid_argument("events are written in codec 1 or 2");
  }
  if (options_.trace_id == 0) options_.trace_id = random_trace_id();
}

void Writer::prepare() {
  if (options_.codec == Codec::kHistory) history_encoder_ = std::make_unique<HistoryEncoder>();
  stage_ = options_.stage;
  if (stage_ == nullptr) {
    own_stage_ = std::make_unique_for_overwrite<Event[]>(options_.events_per_chunk);
    stage_ = own_stage_.get();
  }
}

Writer::~Writer() = default;

void Writer::use_stage(Event* stage) noexcept {
  stage_ = options_.stage = stage;
  own_stage_.reset();
}

bool Writer::fail(const char* error, int error_number) noexcept {
  if (ok()) {
    error_ = error;
    error_number_ = error_number;
  }
  return false;
}

bool Writer::write(const void* data, std::size_t size_bytes) noexcept {
  if (!ok()) return false;
  if (bytes_written_ > most_bytes_ || size_bytes > most_bytes_ - bytes_written_) {
    return fail("the file has reached its limit", EFBIG);
  }
  if (!sink_->write(data, size_bytes)) return fail("can't write", sink_->error_number());
  bytes_written_ += size_bytes;
  return true;
}

void Writer::begin_chunk() {
  chunk_.clear();
  chunk_.resize(sizeof(ChunkHeader));
}

bool Writer::end_chunk(ChunkHeader header) {
  std::memcpy(header.magic, kChunkMagic, sizeof kChunkMagic);
  header.version_major = kVersionMajor;
  header.version_minor = kVersionMinor;
  header.header_bytes = sizeof(ChunkHeader);
  header.payload_bytes = chunk_.size() - sizeof(ChunkHeader);
  header.chunk_number = chunks_written_;
  header.first_sequence = events_written_;
  header.time_resolution_ns = options_.time_resolution_ns;
  header.trace_id = options_.trace_id;
  header.payload_crc = crc32c(chunk_.data() + sizeof(ChunkHeader), header.payload_bytes);
  header.header_crc = crc32c(&header, offsetof(ChunkHeader, header_crc));
  std::memcpy(chunk_.data(), &header, sizeof header);
  if (options_.keeps_index) {
    index_.append(describe(header, bytes_written_));
    note_keyframe(header);
  }
  if (!write(chunk_.data(), chunk_.size())) return false;
  ++chunks_written_;
  return true;
}

void Writer::note_keyframe(const ChunkHeader& header) {
  if (header.codec != static_cast<std::uint16_t>(Codec::kHistory)) return;
  if ((header.flags & kKeyframe) == 0) return;
  keyframe_offset_ = bytes_written_;
  keyframes_.push_back(bytes_written_);
}

bool Writer::write_json(ChunkType type, const char* json, std::size_t size_bytes) noexcept {
  if (!flush()) return false;
  try {
    begin_chunk();
    chunk_.insert(chunk_.end(), json, json + size_bytes);
    ChunkHeader header{};
    header.type = static_cast<std::uint16_t>(type);
    return end_chunk(header);
  } catch (const std::bad_alloc&) {
    return fail("out of memory", ENOMEM);
  }
}

bool Writer::write_metadata(const char* json, std::size_t size_bytes) noexcept {
  return write_json(ChunkType::kMetadata, json, size_bytes);
}

bool Writer::write_names(const char* json, std::size_t size_bytes) noexcept {
  return write_json(ChunkType::kNames, json, size_bytes);
}

bool Writer::append(const Event* events, std::size_t count) noexcept {
  if (closed_) return fail("the trace is closed", 0);
  while (count != 0 && ok()) {
    if (room() == 0 && !flush()) break;
    const std::size_t taken = std::min({count, room(), kStagedAtOnce});
    if (!stage(events, taken)) break;
    events += taken;
    count -= taken;
  }
  return ok();
}

// Codec 2 takes them while they are in the cache, so that they need not be fetched for it again.
bool Writer::stage(const Event* events, std::size_t count) noexcept {
  if (staged_ == 0) begin_events();
  for (std::size_t i = 0; i < count; ++i) {
    const auto time_ns = static_cast<std::int64_t>(events[i].time);
    first_time_ns_ = std::min(first_time_ns_, time_ns);
    last_time_ns_ = std::max(last_time_ns_, time_ns);
  }
  // Forwards if they overlap: what was made in the stage before a flush lies behind its free part.
  if (events != free_stage()) std::copy_n(events, count, free_stage());
  staged_ += count;
  if (history_encoder_ == nullptr) return true;
  try {
    encoded_ += history_encoder_->add(stage_ + encoded_, staged_ - encoded_);
  } catch (const std::bad_alloc&) {
    return fail("out of memory", ENOMEM);
  }
  return true;
}

void Writer::begin_events() noexcept {
  first_time_ns_ = INT64_MAX;
  last_time_ns_ = INT64_MIN;
  encoded_ = 0;
  is_keyframe_ = history_encoder_ == nullptr || events_since_keyframe_ == 0 ||
                 events_since_keyframe_ >= options_.events_per_keyframe ||
                 bytes_written_ - keyframe_offset_ >= options_.bytes_per_keyframe;
  if (history_encoder_ == nullptr) return;
  if (is_keyframe_) {
    history_encoder_->reset();
    events_since_keyframe_ = 0;
  }
  history_encoder_->begin(options_.time_resolution_ns);
}

void Writer::begin_keyframe() noexcept {
  if (staged_ == 0) {
    events_since_keyframe_ = 0;
  } else if (!is_keyframe_) {
    keyframe_is_due_ = true;
  }
}

bool Writer::flush() noexcept {
  if (closed_ && ok()) return fail("the trace is closed", 0);
  if (!ok() || staged_ == 0) return ok();
  const auto resolution = static_cast<std::int64_t>(options_.time_resolution_ns);
  ChunkHeader header{};
  header.type = static_cast<std::uint16_t>(ChunkType::kEvents);
  header.codec = static_cast<std::uint16_t>(options_.codec);
  header.flags = is_keyframe_ ? kKeyframe : 0U;
  header.count = staged_;
  header.first_time_ns = quantise(first_time_ns_, options_.time_resolution_ns) * resolution;
  header.last_time_ns = quantise(last_time_ns_, options_.time_resolution_ns) * resolution;
  try {
    begin_chunk();
    if (history_encoder_ != nullptr) {
      history_encoder_->finish(stage_ + encoded_, staged_ - encoded_, chunk_);
    } else {
      encoder_.encode(stage_, staged_, options_.time_resolution_ns, chunk_);
    }
    if (!end_chunk(header)) return false;
  } catch (const std::bad_alloc&) {
    return fail("out of memory", ENOMEM);
  }
  events_since_keyframe_ = keyframe_is_due_ ? 0 : events_since_keyframe_ + staged_;
  keyframe_is_due_ = false;
  events_written_ += staged_;
  staged_ = 0;
  return true;
}

bool Writer::append_chunk(const ChunkHeader& header, const std::uint8_t* payload) noexcept {
  if (!flush()) return false;
  try {
    begin_chunk();
    chunk_.insert(chunk_.end(), payload, payload + header.payload_bytes);
    if (!end_chunk(header)) return false;
  } catch (const std::bad_alloc&) {
    return fail("out of memory", ENOMEM);
  }
  if (header.type == static_cast<std::uint16_t>(ChunkType::kEvents)) {
    events_written_ += header.count;
    begin_keyframe();  // what follows would build on our own history, which has not seen these
  }
  return true;
}

bool Writer::close(const char* footer_json, std::size_t size_bytes) noexcept {
  if (closed_) return ok();
  if (flush()) {
    try {
      Trailer trailer{{}, bytes_written_, 0, 0};
      std::memcpy(trailer.magic, kEndMagic, sizeof kEndMagic);
      trailer.crc = crc32c(&trailer, offsetof(Trailer, crc));
      ChunkHeader header{};
      header.type = static_cast<std::uint16_t>(ChunkType::kFooter);
      header.count = chunks_written_;
      begin_chunk();
      chunk_.insert(chunk_.end(), index_.bytes().begin(), index_.bytes().end());
      chunk_.insert(chunk_.end(), footer_json, footer_json + size_bytes);
      if (end_chunk(header)) write(&trailer, sizeof trailer);
    } catch (const std::bad_alloc&) {
      fail("out of memory", ENOMEM);
    }
  }
  closed_ = true;
  if (!sink_->close()) fail("can't close", sink_->error_number());
  return ok();
}

}  // namespace gpumemtrace
