// Finds what in the history the next event could be a repetition of: by its address, its size, and
// by it together with the few events before it.
#pragma once

#include <cstdint>
#include <vector>

#include "trace/event.h"
#include "trace/history.h"

namespace gpumemtrace {

// Only the encoder needs it: what it finds is written down. Half a MiB. One thread at a time.
class HistoryLookup {
 public:
  HistoryLookup();
  void reset() noexcept;

  // Takes in the events since the last call (of very many the latest). The functions below are for
  // the event that comes next.
  void update(const History& history) noexcept;

  // How many events ago its address was told, its size by an alloc; 0 = not known.
  std::uint32_t address_reference(const History& history, const Event& event) const noexcept;
  std::uint32_t size_reference(const History& history, const Event& event) const noexcept;
  // How many events ago it and those before it were the same in all fields that change; or had the
  // same structure: what stays when batches have other sizes. 0 = never; may be wrong.
  std::uint32_t find_same(const History& history, const Event& event) const noexcept;
  std::uint32_t find_alike(const History& history, const Event& event) const noexcept;

 private:
  // Number + 1 of an event, cut to 32 bits; 0 = none. (Those of by_context_: context_mark().)
  using Table = std::vector<std::uint32_t>;

  static std::uint32_t distance(std::uint32_t mark, std::uint64_t number) noexcept;
  // Seen from the event `number`.
  std::uint32_t address_distance(const History& history, std::uint64_t address,
                                 std::uint64_t number) const noexcept;
  std::uint64_t structure_with(const History& history, const Event& event,
                               std::uint64_t number) const noexcept;

  Table by_address_, by_size_, by_context_, by_structure_;
  std::uint64_t taken_in_ = 0;   // events
  std::uint64_t context_ = 0;    // of the last three
  std::uint64_t structure_ = 0;  // of the last four
};

}  // namespace gpumemtrace
