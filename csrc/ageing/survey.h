// Which units of a trace deserve full detail: the first ones, and the unusual ones.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <vector>

#include "ageing/shares.h"
#include "ageing/unit.h"

namespace gpumemtrace::ageing {

// Why a unit is unusual; the higher, the later it is given up.
enum class Unusual : std::uint8_t {
  kNone = 0,
  kGrowth = 1,   // what is in use at its end grew by more than lately
  kNewPeak = 2,  // of allocated or reserved bytes, by 1/256 and 1 MiB
  kLoss = 3,     // events were lost
  kRetry = 4,    // the allocator flushed its cache and tried again
  kFailed = 5,   // a request that could not be served
  kHighest = 6,  // the peak of all so far
};

// The latter counts among units of one kind: by how many times 2 the threshold was exceeded.
struct Verdict {
  Unusual why = Unusual::kNone;
  int degree = 0;

  auto operator<=>(const Verdict&) const = default;
};

// Looks at each unit once, in order; what it remembers of one is a few bytes, and of no more than
// kMostCandidates. Units out of which something was left already are not kept.
class Survey {
 public:
  static constexpr std::size_t kMostCandidates = 4096;

  explicit Survey(Shares shares) : shares_(shares) {}

  void look(const Unit& unit);
  struct Choice {
    std::vector<std::uint64_t> units;  // the numbers of those to keep, ascending
    double bytes = 0;                  // of the file, that they take up
  };
  Choice choose() const;
  // What was chosen took more room than thought: choose() takes less from now on.
  void distrust_sizes() noexcept { bytes_factor_ *= 1.5; }
  // Of the file: of all units, and of those out of which something was left already.
  double bytes() const noexcept { return bytes_; }
  double aged_bytes() const noexcept { return aged_bytes_; }

 private:
  struct Candidate {
    std::uint64_t number;
    double bytes;
    Verdict verdict;
  };
  struct Device {
    std::int64_t highest[2] = {0, 0};  // allocated, reserved
    std::uint64_t highest_unit[2] = {0, 0};
    double highest_bytes[2] = {0, 0};
    bool highest_is_whole[2] = {false, false};  // nothing was left out of it
    std::int64_t end = 0;                       // allocated, at the end of the unit before
    double usual_growth = 0;                    // the mean of |growth| lately, fading out
    std::uint64_t units = 0;
  };

  Verdict judge(const Unit& unit);
  Verdict judge_lines(const Unit& unit);
  void add(const Candidate& candidate);

  Shares shares_;
  std::map<std::int16_t, Device> devices_;
  double bytes_factor_ = 1;
  std::vector<Candidate> first_;  // as many as could be kept
  double first_bytes_ = 0;
  bool first_has_ended_ = false;
  double bytes_ = 0;
  double aged_bytes_ = 0;
  std::vector<Candidate> candidates_;
};

}  // namespace gpumemtrace::ageing
