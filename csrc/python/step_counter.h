// The steps of the session that records: their numbers, and how many backwards each had.
// gpumemtrace.capture.steps says when a step ends; this part takes most of them off its hands.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace gpumemtrace::python {

// All under the GIL. Nothing throws but begin_session().
class StepCounter {
 public:
  static StepCounter& instance();

  // Step 0 begins.
  void begin_session();
  // `flags`: of the event (schema.StepFlags).
  void begin_step(std::uint64_t number, std::uint32_t flags) noexcept;

  // The next `steps` times that `optimizer`, and no other, has stepped, pass() begins the next step.
  // nullptr: none does so.
  void let_pass(PyObject* optimizer, std::uint64_t steps) noexcept {
    owner_ = optimizer;
    passes_ = steps;
  }
  // `optimizer` lives and is no other one in the same place. False: Python is to be asked.
  bool pass(PyObject* optimizer) noexcept {
    if (passes_ == 0 || optimizer != owner_) return false;
    --passes_;
    begin_step(number_ + 1, 0);
    return true;
  }

  void count_backward() noexcept { ++backwards_; }

  std::uint64_t number() const noexcept { return number_; }
  // In this session, without step 0.
  std::uint64_t begun() const noexcept { return begun_; }
  // Number of backwards in a step, and of steps that had so many; first seen first.
  const std::vector<std::pair<std::uint64_t, std::uint64_t>>& by_backwards() const noexcept {
    return by_backwards_;
  }

 private:
  void count_backwards_of_step() noexcept;

  PyObject* owner_ = nullptr;  // only compared
  std::uint64_t passes_ = 0;
  std::uint64_t number_ = 0;
  std::uint64_t begun_ = 0;
  std::uint64_t backwards_ = 0;  // in this step
  std::vector<std::pair<std::uint64_t, std::uint64_t>> by_backwards_;
};

}  // namespace gpumemtrace::python
