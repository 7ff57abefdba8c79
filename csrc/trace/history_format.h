// The layout of codec 2: the payload of a chunk whose events are told by comparing them with those
// before (history.h). docs/file-format.md says the same in full sentences.
//
//   payload       varint size of the instructions   instructions   times
//   instruction   a byte: 3 bits operation, 5 bits argument; then
//     copy        `count` events are as those from the source on
//     follow      the same, but with addresses and sizes taken through their references
//     edit        as follow, one event; some of its fields differ:       [second mask]  values
//     jump        the source is somewhere else:                          varint distance
//     add         an event that has no source:       varint kind         [second mask]  values
//     aside       the same, of no place in the history, so that what is compared stays in step
//   times         per event, in order, the Rice code (bits.h) of zigzag(time - guess)
//
// The source is an event `distance` events back; it moves on with each event copied, followed or
// edited, and stays when one is added or put aside.
#pragma once

#include <cstdint>

namespace gpumemtrace {

enum class Operation : std::uint8_t {
  kCopy = 0,    // argument: count - 1, or 31: a varint with count - 32 follows
  kFollow = 1,  // argument: as for copy
  kEdit = 2,    // argument: which fields are told
  kJump = 3,    // argument: 0
  kAdd = 4,     // argument: which fields are told
  kAside = 5,   // argument: which fields are told
};

inline constexpr unsigned kOperationBits = 3;
inline constexpr std::uint8_t kLongCount = 31;

// Which fields are told, in this order; the others are as foreseen.
//   address, size   varint 2r + 1: unit * unzigzag(r) more than foreseen; unit 512 and 1
//                   varint 2r: that of r events ago; 0: varint zigzag(difference) follows
//   extra           varint 0: 0; 1: varint zigzag(difference to the foreseen field) follows;
//                   n: unzigzag(n - 2) more than the estimate
//   stream, and those of the second mask: varint zigzag(difference)
enum ToldFields : std::uint8_t {
  kToldAddress = 1,
  kToldSize = 2,
  kToldExtra = 4,
  kToldStream = 8,
  kToldMore = 16,  // a second mask follows
};

enum ToldMoreFields : std::uint8_t {
  kToldThread = 1,
  kToldSite = 2,
  kToldFlags = 4,
  kToldDevice = 8,
};

inline constexpr std::uint64_t kAddressUnit = 512;  // blocks begin at multiples of it

}  // namespace gpumemtrace
