#include "python/step_counter.h"

#include <cstddef>

#include "capture/producer.h"

namespace gpumemtrace::python {
namespace {

// Different numbers of backwards in a step that are counted.
constexpr std::size_t kMostCounts = 64;

}  // namespace

StepCounter& StepCounter::instance() {
  static auto* counter = new StepCounter;
  return *counter;
}

void StepCounter::begin_session() {
  *this = {};
  by_backwards_.reserve(kMostCounts);
}

void StepCounter::begin_step(std::uint64_t number, std::uint32_t flags) noexcept {
  count_backwards_of_step();
  number_ = number;
  ++begun_;
  capture::Ring* const ring = capture::active_ring();
  if (ring == nullptr) return;
  Event event{};
  event.kind = Kind::kStep;
  event.device = -1;
  event.size = number;
  event.flags = static_cast<decltype(event.flags)>(flags);
  capture::push(ring, event);
}

void StepCounter::count_backwards_of_step() noexcept {
  const std::uint64_t backwards = std::exchange(backwards_, 0);
  for (auto& [known, steps] : by_backwards_) {
    if (known == backwards) {
      ++steps;
      return;
    }
  }
  if (by_backwards_.size() < by_backwards_.capacity()) by_backwards_.emplace_back(backwards, 1);
}

}  // namespace gpumemtrace::python
