// A made-up training run whose every event is known, in as many steps as wanted.
#pragma once

#include <cstdint>
#include <vector>

#include "trace/event.h"

namespace gpumemtrace {

// In each step `pairs` blocks come and go, one lives on to the next step, and the step's mark comes
// last. Sizes differ from step to step, so that no codec makes them small.
class LongRun {
 public:
  // A run without steps has no such marks; with phases it has one before each pair.
  enum class Marks { kSteps, kNone, kPhases };

  explicit LongRun(std::uint64_t pairs, Marks marks = Marks::kSteps)
      : pairs_(pairs), marks_(marks) {}

  // The counters at the beginning, then one step after the other.
  std::vector<Event> next() {
    events_.clear();
    if (step_ == 0) {
      Event event = add(Kind::kStats);
      event.flags = static_cast<std::uint32_t>(StatsCause::kBaseline);
      events_.back() = event;
    }
    for (std::uint64_t i = 0; i < pairs_; ++i) {
      if (marks_ == Marks::kPhases) add(Kind::kPhase).size = 1 + i % 5;
      alloc(kBase + 4096 * (2 + i), size(i));
    }
    for (std::uint64_t i = 0; i < pairs_; ++i) free(kBase + 4096 * (2 + i));
    alloc(kBase + 4096 * (step_ % 2), size(pairs_));
    if (step_ != 0) free(kBase + 4096 * ((step_ + 1) % 2));
    ++step_;
    if (marks_ == Marks::kSteps) add(Kind::kStep).size = step_;
    return events_;
  }

  // So far.
  std::uint64_t allocs() const { return allocs_; }
  std::uint64_t frees() const { return frees_; }
  // Bytes of the block that lives on.
  std::int64_t in_use() const { return in_use_; }

 private:
  static constexpr std::uint64_t kBase = 0x7F0000000000;

  std::uint64_t size(std::uint64_t i) const {
    return (step_ * 7919 + i * 104'729 + step_ * i * 31) % 4000 + 1;
  }
  Event& add(Kind kind) {
    Event event{};
    event.time = time_ += 100 + (time_ * 2'654'435'761) % 900;
    event.kind = kind;
    event.thread = 1;
    events_.push_back(event);
    return events_.back();
  }
  void alloc(std::uint64_t address, std::uint64_t bytes) {
    Event& event = add(Kind::kAlloc);
    event.address = address;
    event.size = bytes;
    in_use_ = static_cast<std::int64_t>(bytes);
    ++allocs_;
  }
  void free(std::uint64_t address) {
    add(Kind::kFree).address = address;
    ++frees_;
  }

  std::uint64_t pairs_;
  Marks marks_;
  std::uint64_t step_ = 0;
  std::uint64_t time_ = 0;
  std::uint64_t allocs_ = 0;
  std::uint64_t frees_ = 0;
  std::int64_t in_use_ = 0;
  std::vector<Event> events_;
};

// What a trace has of a run, that which was left out of it included.
struct Told {
  std::uint64_t allocs = 0;
  std::uint64_t frees = 0;
  std::uint64_t left_out_allocs = 0;
  std::vector<std::uint64_t> steps;  // the numbers of their marks
};

inline Told told_by(const std::vector<Event>& events) {
  Told told;
  for (const Event& event : events) {
    switch (event.kind) {
      case Kind::kAlloc:
        ++told.allocs;
        break;
      case Kind::kFree:
        ++told.frees;
        break;
      case Kind::kAged:
        told.allocs += event.address;
        told.left_out_allocs += event.address;
        told.frees += event.stream;
        break;
      case Kind::kStep:
        told.steps.push_back(event.size);
        break;
      default:
        break;
    }
  }
  return told;
}

}  // namespace gpumemtrace
