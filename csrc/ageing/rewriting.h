// Makes the smaller file that takes the place of one that has grown too large, a chunk at a time,
// while the old one goes on to be written and read.
//
// Two passes over all but the last steps: one chooses what deserves full detail, one writes. When the
// summaries take too much room the second pass begins again and tells more steps as one. Then the
// chunks of the last steps are copied as they are, until nothing is left to copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ageing/shares.h"
#include "ageing/summary.h"
#include "ageing/survey.h"
#include "ageing/unit.h"
#include "trace/replacement_sink.h"
#include "trace/source.h"
#include "trace/writer.h"

namespace gpumemtrace::ageing {

// How tight it gets: what has been learnt in one rewriting holds for the next.
struct Tightness {
  static constexpr std::uint64_t kFactor = 8;  // so many steps are told as one, then again so many
  static constexpr std::uint64_t kMostSteps = std::uint64_t{1} << 24;

  double summary_share = 0.1;   // of the bytes of a step, what its summary takes
  std::uint64_t new_steps = 1;  // so many steps are told as one when they age
};

class Rewriting {
 public:
  // Of what `source` has up to now, which `old` has written. Throws std::system_error.
  Rewriting(Shares shares, Tightness tightness, FileSource& source, const Writer& old);

  // Reads the next chunk; returns the bytes of it, 0 = all that is there has been copied. Throws
  // FormatError, std::system_error, std::length_error when it can't be made small enough.
  std::uint64_t advance();

  // Of the new file; the two files together are kept below the limit.
  const Writer& writer() const noexcept { return *writer_; }
  void limit(std::uint64_t most_bytes) noexcept { writer_->limit(most_bytes); }
  const Tightness& tightness() const noexcept { return tightness_; }

  // The new file in the place of the old one, and what goes on to write it: the old one's stage,
  // which is empty, is its own from now on (nullptr: it has its own already). Throws std::system_error; the old one is as it was then.
  std::unique_ptr<Writer> publish(Event* stage);
  // Where that has put it; opened by this name it says its name, whatever it is renamed to.
  const std::string& path() const noexcept { return sink_->path(); }

 private:
  enum class Pass { kSurvey, kWrite, kCopy };
  // How a unit goes to the new file.
  enum class Telling {
    kWhole,      // all its records
    kAlone,      // in summary, with its phases
    kSeveral,    // in summary, and several units as one
    kSummaries,  // the same, of units that are summaries already
  };

  void begin_file();
  void begin_writing();
  void end_pass();
  // Begins the second pass again, to be made smaller.
  void coarsen();
  void plan();
  double room() const;  // for summaries
  void take_units();
  Telling telling_of(const Unit& unit);
  void write(const Unit& unit);
  void write_group();
  void append();
  bool is_kept(const Unit& unit);
  void check();  // throws what the writer says

  Shares shares_;
  Tightness tightness_;
  double to_save_ = 0;  // bytes, by telling the oldest summaries several as one
  double saved_ = 0;
  double told_again_ = 0;  // bytes of units that were written as they are
  FileSource& source_;
  WriterOptions options_;
  std::uint64_t last_begin_;  // offset of the chunk at which the last steps begin
  Survey survey_;
  Pass pass_ = Pass::kSurvey;
  bool is_too_large_ = false;
  std::uint64_t offset_ = 0;         // of the next chunk
  std::optional<UnitReader> units_;  // never without
  Unit unit_;

  ReplacementSink* sink_ = nullptr;  // owned by writer_
  std::unique_ptr<Writer> writer_;
  Survey::Choice kept_;
  std::size_t kept_done_ = 0;
  Summary summary_;
  RowBuffer group_;            // of units that are told as one
  std::uint64_t grouped_ = 0;  // how many those are
  Telling group_telling_ = Telling::kSeveral;
  std::vector<Event> told_;
};

}  // namespace gpumemtrace::ageing
