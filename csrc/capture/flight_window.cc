#include "capture/flight_window.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <utility>

#include "capture/json.h"
#include "trace/chunk.h"
#include "trace/source.h"

namespace gpumemtrace::capture {
namespace {

class ChunkSource final : public Source {
 public:
  explicit ChunkSource(const std::vector<std::uint8_t>& bytes) : bytes_(bytes) {}
  std::uint64_t size_bytes() const noexcept override { return bytes_.size(); }
  std::size_t read(std::uint64_t offset, void* out, std::size_t size_bytes) const override {
    const std::size_t at = std::min(static_cast<std::size_t>(offset), bytes_.size());
    const std::size_t got = std::min(size_bytes, bytes_.size() - at);
    std::memcpy(out, bytes_.data() + at, got);
    return got;
  }

 private:
  const std::vector<std::uint8_t>& bytes_;
};

bool is_type(const ChunkHeader& header, ChunkType type) noexcept {
  return header.type == static_cast<std::uint16_t>(type);
}

bool begins_group(const ChunkHeader& header) noexcept {
  return is_type(header, ChunkType::kEvents) && (header.flags & kKeyframe) != 0;
}

// As a reader would: later members win, one level deep.
void merge(std::string& known, std::string later) {
  if (known.starts_with('{') && later.starts_with('{')) {
    std::map<std::string, std::string> members;
    for (auto& [key, value] : json_members(known)) members[key] = std::move(value);
    for (auto& [key, value] : json_members(later)) members[key] = std::move(value);
    later.clear();
    for (const auto& [key, value] : members) {
      later += later.empty() ? '{' : ',';
      later += key + ':' + value;
    }
    later += later.empty() ? "{}" : "}";
  }
  known = std::move(later);
}

}  // namespace

class FlightWindow::IntoWindow final : public Sink {
 public:
  explicit IntoWindow(FlightWindow& window) : window_(window) {}
  // A Writer gives a chunk in one piece.
  bool write(const void* data, std::size_t size_bytes) noexcept override {
    try {
      window_.take(data, size_bytes);
      return true;
    } catch (const std::exception&) {
      return fail(ENOMEM);
    }
  }
  bool close() noexcept override { return error_number() == 0; }

 private:
  FlightWindow& window_;
};

std::unique_ptr<Sink> FlightWindow::make_sink() { return std::make_unique<IntoWindow>(*this); }

void FlightWindow::take(const void* data, std::size_t size_bytes) {
  ChunkHeader header{};
  if (size_bytes < sizeof header) return;  // the preamble
  std::memcpy(&header, data, sizeof header);
  const auto* bytes = static_cast<const std::uint8_t*>(data);
  const std::uint8_t* payload = bytes + header.header_bytes;
  if (is_type(header, ChunkType::kMetadata)) {
    const std::string json(payload, bytes + size_bytes);
    for (auto& [key, value] : json_members(json)) merge(metadata_[key], std::move(value));
    return;
  }
  const std::size_t payload_bytes = size_bytes - header.header_bytes;
  if (is_type(header, ChunkType::kNames) && names_bytes_ + payload_bytes <= kMostNamesBytes) {
    names_.emplace_back(payload, bytes + size_bytes);
    names_bytes_ += payload_bytes;
    return;
  }
  chunks_.push_back({header, Bytes(bytes, bytes + size_bytes)});
  bytes_ += size_bytes;
  if (is_type(header, ChunkType::kEvents)) newest_ns_ = header.last_time_ns;
  if (begins_group(header)) {
    group_began_ns_ = header.first_time_ns;
    group_begins_ns_.push_back(header.first_time_ns);
  }
}

bool FlightWindow::second_group_reaches_back() const {
  return newest_ns_ - group_begins_ns_[1] >= static_cast<std::int64_t>(options_.window_ns);
}

void FlightWindow::trim() {
  while (group_begins_ns_.size() > 1 &&
         (second_group_reaches_back() || bytes_ > options_.most_bytes)) {
    group_begins_ns_.pop_front();
    let_first_go();
    while (!chunks_.empty() && !begins_group(chunks_.front().header)) let_first_go();
  }
}

void FlightWindow::let_first_go() {
  const Stored& first = chunks_.front();
  if (is_type(first.header, ChunkType::kEvents)) {
    const EventColumns columns = decoded_.columns(first.header.count);
    decoder_.decode(ChunkSource(first.bytes), describe(first.header, 0), columns);
    before_.feed(columns, static_cast<std::size_t>(first.header.count));
  }
  bytes_ -= first.bytes.size();
  chunks_.pop_front();
}

bool FlightWindow::write_to(Writer& writer, const std::string& about) {
  std::string record = "{";
  for (const auto& [key, value] : metadata_) record += key + ':' + value + ',';
  const std::vector<Event> before = before_.tell();
  record += "\"flight_recorder\":{" + about + ",\"told_events\":" + std::to_string(before.size()) +
            ",\"before\":" + before_.to_json() + "}}";
  if (!writer.write_metadata(record.data(), record.size())) return false;
  for (const Bytes& names : names_) {
    const auto* json = reinterpret_cast<const char*>(names.data());
    if (!writer.write_names(json, names.size())) return false;
  }
  if (!before.empty() && !writer.append(before.data(), before.size())) return false;
  for (const Stored& chunk : chunks_) {
    if (!writer.append_chunk(chunk.header, chunk.bytes.data() + chunk.header.header_bytes)) {
      return false;
    }
  }
  return true;
}

}  // namespace gpumemtrace::capture
