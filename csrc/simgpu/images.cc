#include "images.h"

#include <cstdint>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "config.h"

namespace simgpu {
namespace {

// The layout of nvcc's fat binaries: a wrapper, a header, then entries, each with its image behind.
constexpr uint32_t kWrapperMagic = 0x466243b1;
constexpr uint32_t kHeaderMagic = 0xba55ed50;
constexpr uint16_t kPtx = 1;
constexpr uint16_t kMachineCode = 2;

struct Wrapper {
  uint32_t magic;
  uint32_t version;
  const char* data;
};

struct Header {
  uint32_t magic;
  uint16_t version;
  uint16_t header_bytes;
  uint64_t bytes;
};

struct Entry {
  uint16_t kind;
  uint16_t version;
  uint32_t header_bytes;
  uint64_t bytes;
  uint32_t unused[3];
  uint32_t architecture;
};

struct Images {
  std::mutex mutex;
  std::unordered_map<const void*, const void*> binary_of;
};

// Never destroyed: kernels are looked up until the process ends.
Images& images() {
  static Images& all = *new Images;
  return all;
}

// Machine code runs on its own and later minor versions of the same major one, PTX on all later.
int choose(const void* binary, int card) {
  Wrapper wrapper;
  std::memcpy(&wrapper, binary, sizeof wrapper);
  if (wrapper.magic != kWrapperMagic || wrapper.data == nullptr) return card;
  Header header;
  std::memcpy(&header, wrapper.data, sizeof header);
  if (header.magic != kHeaderMagic) return card;
  int by_code = 0;
  int by_ptx = 0;
  const char* const end = wrapper.data + header.header_bytes + header.bytes;
  for (const char* at = wrapper.data + header.header_bytes; at + sizeof(Entry) <= end;) {
    Entry entry;
    std::memcpy(&entry, at, sizeof entry);
    const int architecture = static_cast<int>(entry.architecture);
    if (architecture <= card) {
      const bool is_code = entry.kind == kMachineCode && architecture / 10 == card / 10;
      if (is_code && architecture > by_code) by_code = architecture;
      if (entry.kind == kPtx && architecture > by_ptx) by_ptx = architecture;
    }
    if (entry.header_bytes == 0) break;
    at += entry.header_bytes + entry.bytes;
  }
  if (by_code != 0) return by_code;
  return by_ptx != 0 ? by_ptx : card;
}

}  // namespace

void remember_image(const void* host, const void* binary) {
  Images& all = images();
  const std::lock_guard lock(all.mutex);
  all.binary_of[host] = binary;
}

int image_architecture(const void* host) {
  const Config& c = config();
  const int card = c.major * 10 + c.minor;
  Images& all = images();
  const std::lock_guard lock(all.mutex);
  const auto found = all.binary_of.find(host);
  return found == all.binary_of.end() ? card : choose(found->second, card);
}

}  // namespace simgpu
