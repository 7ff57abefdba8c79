#include "ageing/ageing.h"

#include <algorithm>
#include <cerrno>
#include <exception>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include "trace/descriptor.h"

namespace gpumemtrace::ageing {

WriterOptions Ageing::prepare(WriterOptions options, std::uint64_t most_bytes) {
  if (most_bytes < Shares::kLeastBytes) {
    throw std::invalid_argument("a trace needs at least 1 MiB of disk");
  }
  const Shares shares{most_bytes};
  options.events_per_chunk = std::min(options.events_per_chunk, shares.events_per_chunk());
  options.bytes_per_keyframe = std::min(options.bytes_per_keyframe, shares.bytes_per_keyframe());
  return options;
}

Ageing::Ageing(std::uint64_t most_bytes, Writer& writer)
    : shares_{most_bytes},
      source_(std::make_unique<FileSource>(descriptor_path(writer.descriptor()), true)),
      seen_bytes_(writer.bytes_written()) {
  writer.limit(most_bytes);
}

Ageing::~Ageing() = default;

bool Ageing::work(Writer& writer) noexcept {
  if (!why_.empty() || writer.error()[0] != '\0') return false;
  try {
    const std::uint64_t bytes = writer.bytes_written();
    due_bytes_ += Shares::kPace * (bytes - seen_bytes_);
    seen_bytes_ = bytes;
    if (rewriting_ == nullptr) {
      if (bytes < shares_.start_bytes()) return false;
      begin(writer);
    }
    share_room(writer);
    bool is_ready = due_bytes_ != 0 && advance(writer);
    // Rather let the ring fill than take more room than was allowed.
    while (!is_ready && bytes - begun_bytes_ > shares_.meanwhile_bytes() &&
           writer.error()[0] == '\0') {
      is_ready = advance(writer);
    }
    share_room(writer);
    return is_ready;
  } catch (const std::exception& error) {
    give_up(error.what(), writer);
    return false;
  }
}

void Ageing::begin(const Writer& writer) {
  due_bytes_ = 1;
  begun_bytes_ = writer.bytes_written();
  rewriting_ = std::make_unique<Rewriting>(shares_, tightness_, *source_, writer);
}

// True: all that the old file has is in the new one.
bool Ageing::advance(Writer& writer) {
  const std::uint64_t bytes = rewriting_->advance();
  due_bytes_ -= std::min(due_bytes_, bytes);
  if (bytes != 0) return false;
  // All that is written has been copied: now what still waits in the old writer.
  if (!writer.flush()) return false;
  while (rewriting_->advance() != 0) {
  }
  return true;
}

void Ageing::replace(std::unique_ptr<Writer>& writer) noexcept {
  try {
    auto source = std::make_unique<FileSource>(descriptor_path(smaller()->descriptor()), true);
    std::unique_ptr<Writer> smaller = rewriting_->publish(writer->options().stage);
    writer.swap(smaller);  // from here on whatever fails leaves a file that can be written
    source_.swap(source);
    tightness_ = rewriting_->tightness();
    const std::string path = rewriting_->path();
    rewriting_.reset();
    writer->limit(shares_.most_bytes);
    source = std::make_unique<FileSource>(path, true);
    if (!is_same_file(source->descriptor(), source_->descriptor())) {
      throw std::system_error(ENOENT, std::generic_category());
    }
    source_.swap(source);
    seen_bytes_ = writer->bytes_written();
    due_bytes_ = 0;
    ++rounds_;
    if (seen_bytes_ >= shares_.start_bytes()) {
      throw std::length_error("it has become no smaller");
    }
  } catch (const std::exception& error) {
    give_up(error.what(), *writer);
  }
}

// Neither file may take what the other one has.
void Ageing::share_room(Writer& writer) {
  writer.limit(shares_.most_bytes - rewriting_->writer().bytes_written());
  rewriting_->limit(shares_.most_bytes - writer.bytes_written());
}

void Ageing::give_up(const char* why, Writer& writer) noexcept {
  rewriting_.reset();
  writer.limit(shares_.most_bytes);
  try {
    why_ = why;
  } catch (const std::exception&) {
    why_ = "no memory";  // short enough to need none
  }
}

}  // namespace gpumemtrace::ageing
