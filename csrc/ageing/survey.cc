#include "ageing/survey.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace gpumemtrace::ageing {
namespace {

constexpr std::int64_t kLeastChange = std::int64_t{1} << 20;
constexpr std::int64_t kPeakMargin = 256;   // a new peak is higher by this part of the old one
constexpr double kGrowthFactor = 4;         // times the usual
constexpr double kFade = 1.0 / 16;          // weight of the latest unit
constexpr std::uint64_t kUnitsToLearn = 4;  // before anything counts as unusual growth

double room(std::uint64_t bytes) noexcept { return static_cast<double>(bytes); }

int degree_of(double value, double threshold) noexcept {
  return std::ilogb(std::max(value / threshold, 1.0));
}

// The most alarming first, then the newest.
bool more_unusual(const auto& a, const auto& b) noexcept {
  return a.verdict != b.verdict ? a.verdict > b.verdict : a.number > b.number;
}

}  // namespace

void Survey::look(const Unit& unit) {
  const Verdict verdict = judge(unit);
  bytes_ += unit.bytes;
  if (unit.has_aged) {
    first_has_ended_ = true;
    aged_bytes_ += unit.bytes;
    return;
  }
  if (!first_has_ended_ && first_bytes_ + unit.bytes <= room(shares_.first_bytes())) {
    first_.push_back({unit.number, unit.bytes, verdict});
    first_bytes_ += unit.bytes;
    return;
  }
  first_has_ended_ = true;
  if (verdict.why != Unusual::kNone) add({unit.number, unit.bytes, verdict});
}

Verdict Survey::judge(const Unit& unit) {
  Verdict verdict = judge_lines(unit);
  for (std::size_t i = 0; i < unit.rows.count; ++i) {
    switch (unit.rows.kind(i)) {
      case Kind::kAllocFailed:
        verdict = std::max(verdict, {Unusual::kFailed});
        break;
      case Kind::kRetry:
        verdict = std::max(verdict, {Unusual::kRetry});
        break;
      case Kind::kGap:
        verdict = std::max(verdict, {Unusual::kLoss});
        break;
      default:
        break;
    }
  }
  return verdict;
}

Verdict Survey::judge_lines(const Unit& unit) {
  struct Seen {
    std::int64_t highest[2] = {INT64_MIN, INT64_MIN};
    std::int64_t end = 0;
  };
  std::map<std::int16_t, Seen> seen;
  Seen* last = nullptr;
  std::int16_t last_device = -1;
  const Rows& rows = unit.rows;
  for (std::size_t i = 0; i < rows.count; ++i) {
    const std::int16_t device = rows.of_device[i];
    if (device < 0) continue;
    if (last == nullptr || device != last_device) {
      last = &seen[device];
      last_device = device;
    }
    last->highest[0] = std::max(last->highest[0], rows.allocated(i));
    last->highest[1] = std::max(last->highest[1], rows.reserved(i));
    last->end = rows.allocated(i);
  }
  Verdict verdict;
  for (const auto& [number, found] : seen) {
    Device& device = devices_[number];
    for (int line = 0; line < 2; ++line) {
      const std::int64_t before = device.highest[line];
      if (found.highest[line] <= before) continue;
      device.highest[line] = found.highest[line];
      device.highest_unit[line] = unit.number;
      device.highest_bytes[line] = unit.bytes;
      device.highest_is_whole[line] = !unit.has_aged;
      const std::int64_t margin = std::max(kLeastChange, before / kPeakMargin);
      const std::int64_t excess = found.highest[line] - before;
      if (excess >= margin) {
        const int degree = degree_of(static_cast<double>(excess), static_cast<double>(margin));
        verdict = std::max(verdict, {Unusual::kNewPeak, degree});
      }
    }
    const double growth = static_cast<double>(found.end) - static_cast<double>(device.end);
    device.end = found.end;
    const double threshold =
        std::max(kGrowthFactor * device.usual_growth, static_cast<double>(kLeastChange));
    if (device.units++ >= kUnitsToLearn && growth > threshold) {
      verdict = std::max(verdict, {Unusual::kGrowth, degree_of(growth, threshold)});
    }
    if (device.units > 1) device.usual_growth += kFade * (std::fabs(growth) - device.usual_growth);
  }
  return verdict;
}

void Survey::add(const Candidate& candidate) {
  candidates_.push_back(candidate);
  if (candidates_.size() < 2 * kMostCandidates) return;
  const auto cut = candidates_.begin() + kMostCandidates;
  std::nth_element(candidates_.begin(), cut, candidates_.end(),
                   [](const auto& a, const auto& b) { return more_unusual(a, b); });
  candidates_.erase(cut, candidates_.end());
}

Survey::Choice Survey::choose() const {
  std::vector<Candidate> ranked = candidates_;
  for (const auto& [number, device] : devices_) {
    for (int line = 0; line < 2; ++line) {
      if (!device.highest_is_whole[line]) continue;
      ranked.push_back(
          {device.highest_unit[line], device.highest_bytes[line], {Unusual::kHighest}});
    }
  }
  std::sort(ranked.begin(), ranked.end(),
            [](const auto& a, const auto& b) { return more_unusual(a, b); });
  std::set<std::uint64_t> chosen;
  Choice choice;
  const auto take = [&](const std::vector<Candidate>& candidates, double left) {
    for (const Candidate& candidate : candidates) {
      const double bytes = bytes_factor_ * candidate.bytes;
      if (bytes > left || !chosen.insert(candidate.number).second) continue;
      left -= bytes;
      choice.bytes += candidate.bytes;
    }
  };
  take(first_, room(shares_.first_bytes()));
  take(ranked, room(shares_.unusual_bytes()));
  choice.units.assign(chosen.begin(), chosen.end());
  return choice;
}

}  // namespace gpumemtrace::ageing
