// Keeps a trace below a size, for a run of any length: from time to time older parts are told in
// summary. What stays in detail says survey.h, what a summary is summary.h, how the room is shared
// out shares.h.
//
// At every moment there is one file by that name that can be read, with the newest data in it, and it
// and the one that is to take its place together are within the limit.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "ageing/rewriting.h"
#include "ageing/shares.h"
#include "trace/export.h"
#include "trace/source.h"
#include "trace/writer.h"

namespace gpumemtrace::ageing {

// One thread at a time.
class GPUMEMTRACE_API Ageing {
 public:
  // The options that a writer of a file of at most `most_bytes` needs. Throws std::invalid_argument
  // for fewer than Shares::kLeastBytes.
  static WriterOptions prepare(WriterOptions options, std::uint64_t most_bytes);

  // Of the regular file that `writer` has just made. Throws std::system_error.
  Ageing(std::uint64_t most_bytes, Writer& writer);
  ~Ageing();

  // To be called after whatever was given to the writer, which may be flushed. Does a share of the
  // work that is due. True: a smaller file is ready, which holds all that is in the other one;
  // nothing may be written until it has its place.
  // What goes wrong here is not the writer's fault: it goes on, up to the limit, and why() tells.
  bool work(Writer& writer) noexcept;
  // Writes the smaller file that is ready, or is being made; nullptr = there is none.
  const Writer* smaller() const noexcept {
    return rewriting_ != nullptr ? &rewriting_->writer() : nullptr;
  }
  // Puts it in the place of the other, and its writer in that of `writer`; or leaves both as they
  // are, and why() tells.
  void replace(std::unique_ptr<Writer>& writer) noexcept;

  // Why the file can't be made smaller any more; "" = it can.
  const std::string& why() const noexcept { return why_; }
  // The file as it is now.
  int descriptor() const noexcept { return source_->descriptor(); }
  // How often a smaller file has taken the place of another.
  std::uint64_t rounds() const noexcept { return rounds_; }

 private:
  void begin(const Writer& writer);
  bool advance(Writer& writer);
  void share_room(Writer& writer);
  void give_up(const char* why, Writer& writer) noexcept;

  Shares shares_;
  std::unique_ptr<FileSource> source_;
  std::unique_ptr<Rewriting> rewriting_;
  Tightness tightness_;
  std::uint64_t seen_bytes_ = 0;
  std::uint64_t begun_bytes_ = 0;  // of the file, when rewriting began
  std::uint64_t due_bytes_ = 0;    // of the file, to be read
  std::uint64_t rounds_ = 0;
  std::string why_;
};

}  // namespace gpumemtrace::ageing
