#include "trace/decoder.h"

#include <limits>
#include <type_traits>

namespace gpumemtrace {
namespace {

// Every value must fit the narrow field that it came from.
template <class Field>
class Narrow {
 public:
  Field operator()(std::uint64_t value) noexcept {
    seen_ |= value;
    return static_cast<Field>(value);
  }
  bool fits() const noexcept {
    return seen_ <= std::numeric_limits<std::make_unsigned_t<Field>>::max();
  }

 private:
  std::uint64_t seen_ = 0;
};

}  // namespace

void Decoder::decode(ByteReader in, std::size_t count, std::uint64_t time_resolution_ns,
                     const EventColumns& out) {
  values_.resize(count);
  column_.decode(in, count, values_.data());
  Narrow<std::uint16_t> narrow_kind;
  for (std::size_t i = 0; i < count; ++i) out.kind[i] = narrow_kind(values_[i]);
  if (!narrow_kind.fits()) in.fail("kind", "does not fit its 16 bits");

  column_.decode(in, count, values_.data());
  bool overflow = false;
  for (std::size_t i = 0; i < count; ++i) {
    overflow |= __builtin_mul_overflow(static_cast<std::int64_t>(values_[i]), time_resolution_ns,
                                       &out.time_ns[i]);
  }
  if (overflow) in.fail("time", "does not fit 64 bits of nanoseconds");

  for (const KindGroups::Group& group : groups_.split(out.kind, count)) {
    const auto get = [&](auto* field) {
      using Field = std::remove_pointer_t<decltype(field)>;
      column_.decode(in, group.size, values_.data());
      Narrow<Field> narrow;
      for (std::size_t i = 0; i < group.size; ++i) {
        field[group.positions[i]] = narrow(values_[i]);
      }
      if (!narrow.fits()) in.fail("column", "holds a value too large for its field");
    };
    get(out.address);
    get(out.size_bytes);
    get(out.stream);
    get(out.extra);
    get(out.thread);
    get(out.site);
    get(out.flags);
    get(out.device);
  }
  if (in.remaining() != 0) in.fail("payload", "goes on after its last column");
}

}  // namespace gpumemtrace
