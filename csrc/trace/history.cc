#include "trace/history.h"

namespace gpumemtrace {

History::History() : entries_(new Entry[kCapacity]), guesses_(new TimeGuess[kCapacity]) {}

// What is out of reach is never looked at: it may stay.
void History::reset() noexcept {
  size_ = 0;
  allocated_ = 0;
  told_ = {};
}

}  // namespace gpumemtrace
