#include "ageing/rewriting.h"

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace gpumemtrace::ageing {
namespace {

// The last steps begin where reading can, with their share of the file behind it.
std::uint64_t find_last_begin(const Shares& shares, const Writer& old) {
  std::uint64_t begin = sizeof(Preamble);
  for (const std::uint64_t offset : old.keyframes()) {
    if (old.bytes_written() - offset < shares.last_bytes()) break;
    begin = offset;
  }
  return begin;
}

}  // namespace

Rewriting::Rewriting(Shares shares, Tightness tightness, FileSource& source, const Writer& old)
    : shares_(shares),
      tightness_(tightness),
      source_(source),
      options_(old.options()),
      last_begin_(find_last_begin(shares, old)),
      survey_(shares),
      offset_(sizeof(Preamble)),
      units_(std::in_place, shares.records_per_unit()) {
  options_.stage = nullptr;  // the old writer has it yet
  source_.refresh();
  begin_file();
}

void Rewriting::begin_file() {
  auto sink = std::make_unique<ReplacementSink>(source_.descriptor());
  sink_ = sink.get();
  writer_ = std::make_unique<Writer>(std::move(sink), options_);
  check();
}

void Rewriting::begin_writing() {
  begin_file();
  pass_ = Pass::kWrite;
  is_too_large_ = false;
  offset_ = sizeof(Preamble);
  units_.emplace(shares_.records_per_unit());
  summary_ = Summary();
  kept_done_ = 0;
  saved_ = told_again_ = 0;
  group_.clear();
  grouped_ = 0;
}

void Rewriting::check() {
  if (writer_->error()[0] == '\0') return;
  const int number = writer_->error_number();
  throw std::system_error(number != 0 ? number : EIO, std::generic_category());
}

std::uint64_t Rewriting::advance() {
  if (pass_ != Pass::kCopy && offset_ >= last_begin_) end_pass();
  if (offset_ >= source_.size_bytes()) source_.refresh();
  if (offset_ >= source_.size_bytes()) return 0;
  const ChunkInfo info = describe(read_header(source_, offset_), offset_);
  offset_ = info.end();
  if (info.is(ChunkType::kEvents) && pass_ != Pass::kCopy) {
    units_->feed(source_, info);
    take_units();
    if (is_too_large_) coarsen();
  } else if (pass_ != Pass::kSurvey) {
    const Chunk chunk = read_chunk(source_, info);
    writer_->append_chunk(chunk.header, chunk.payload.data());
    check();
  }
  return info.stored_bytes;
}

void Rewriting::end_pass() {
  // The last unit goes on in the last steps.
  if (units_->take_rest(unit_) && pass_ == Pass::kWrite) {
    write_group();
    summary_.keep(unit_.rows, told_);
    append();
  }
  if (pass_ == Pass::kSurvey) {
    plan();
    return begin_writing();
  }
  write_group();
  writer_->flush();
  check();
  if (is_too_large_ || writer_->bytes_written() > shares_.before_last_bytes()) return coarsen();
  const double summarised = survey_.bytes() - told_again_;
  if (summarised > 0) {
    const double summaries = static_cast<double>(writer_->bytes_written()) - told_again_;
    tightness_.summary_share = std::clamp(summaries / summarised, 0.01, 1.0);
  }
  pass_ = Pass::kCopy;
}

double Rewriting::room() const {
  return static_cast<double>(shares_.before_last_bytes()) - kept_.bytes;
}

// Summaries stay as they are as long as there is room for those of the new steps.
void Rewriting::plan() {
  kept_ = survey_.choose();
  const double new_bytes = survey_.bytes() - survey_.aged_bytes() - kept_.bytes;
  const double wanted = survey_.aged_bytes() + tightness_.summary_share * new_bytes;
  to_save_ = std::max(wanted - 0.9 * room(), 0.0);
}

void Rewriting::coarsen() {
  survey_.distrust_sizes();
  kept_ = survey_.choose();
  if (to_save_ < survey_.aged_bytes()) {
    to_save_ = 2 * to_save_ + room() / 4;
  } else {
    tightness_.new_steps *= Tightness::kFactor;
  }
  if (tightness_.new_steps > Tightness::kMostSteps) {
    throw std::length_error("what is in use takes more room to tell than there is");
  }
  begin_writing();
}

void Rewriting::take_units() {
  while (!is_too_large_ && units_->take(unit_)) {
    if (pass_ == Pass::kSurvey) {
      survey_.look(unit_);
    } else {
      write(unit_);
    }
  }
}

bool Rewriting::is_kept(const Unit& unit) {
  if (kept_done_ == kept_.units.size() || kept_.units[kept_done_] != unit.number) return false;
  ++kept_done_;
  return true;
}

Rewriting::Telling Rewriting::telling_of(const Unit& unit) {
  if (is_kept(unit)) return Telling::kWhole;
  if (unit.has_aged) {
    const bool is_whole = unit.has_baseline || saved_ >= to_save_;
    return is_whole ? Telling::kWhole : Telling::kSummaries;
  }
  const bool is_alone = unit.has_baseline || tightness_.new_steps == 1;
  return is_alone ? Telling::kAlone : Telling::kSeveral;
}

void Rewriting::write(const Unit& unit) {
  const Telling telling = telling_of(unit);
  if (telling != group_telling_ || group_.size() + unit.rows.count > shares_.records_per_unit()) {
    write_group();
  }
  if (telling == Telling::kWhole) {
    told_again_ += unit.bytes;
    summary_.keep(unit.rows, told_);
    return append();
  }
  if (telling == Telling::kAlone) {
    summary_.age(unit.rows, false, told_);
    return append();
  }
  std::uint64_t most = tightness_.new_steps;
  if (telling == Telling::kSummaries) {
    most = Tightness::kFactor;
    saved_ += unit.bytes * (1 - 1.0 / Tightness::kFactor);
  }
  group_telling_ = telling;
  group_.append(unit.rows);
  if (++grouped_ == most) write_group();
}

void Rewriting::write_group() {
  if (grouped_ == 0) return;
  const Rows rows = group_.rows();
  // Of pieces a few summaries and much that has not aged may make one, as long as one may be: told
  // without phases, though no second one fits in.
  const bool is_piece = rows.kind(rows.count - 1) != Kind::kStep;
  if (group_telling_ == Telling::kSummaries && grouped_ == 1 && !is_piece) {
    summary_.keep(rows, told_);  // it may stand for several steps already
  } else {
    summary_.age(rows, grouped_ > 1 || is_piece, told_);
  }
  group_.clear();
  grouped_ = 0;
  append();
}

void Rewriting::append() {
  writer_->append(told_.data(), told_.size());
  told_.clear();
  check();
  is_too_large_ |= writer_->bytes_written() > shares_.before_last_bytes();
}

std::unique_ptr<Writer> Rewriting::publish(Event* stage) {
  if (!sink_->publish()) {
    throw std::system_error(sink_->error_number(), std::generic_category());
  }
  if (stage != nullptr) writer_->use_stage(stage);
  return std::move(writer_);
}

}  // namespace gpumemtrace::ageing
