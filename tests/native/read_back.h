// What a trace file says, as the tests want to see it.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "trace/event.h"
#include "trace/reader.h"
#include "trace/source.h"

namespace gpumemtrace {

struct ReadBack {
  std::vector<Event> events;
  std::string metadata;  // all of it, in order
  std::string names;
  std::string footer;  // empty = not closed
  std::size_t problems = 0;
};

inline ReadBack read_back(const std::string& path) {
  Reader reader(std::make_unique<FileSource>(path));
  ReadBack out;
  for (const std::string& json : reader.metadata()) out.metadata += json;
  for (const std::string& json : reader.names()) out.names += json;
  out.footer = reader.footer().value_or("");
  const std::size_t chunks = reader.chunks().size();
  const auto count = static_cast<std::size_t>(reader.count(0, chunks));
  std::vector<std::int64_t> time(count);
  std::vector<std::uint16_t> kind(count);
  std::vector<std::uint64_t> address(count), size(count), stream(count), extra(count);
  std::vector<std::uint32_t> thread(count), site(count), flags(count);
  std::vector<std::int16_t> device(count);
  reader.read(0, chunks,
              {time.data(), kind.data(), address.data(), size.data(), stream.data(), extra.data(),
               thread.data(), site.data(), flags.data(), device.data()});
  for (std::size_t i = 0; i < count; ++i) {
    out.events.push_back({static_cast<std::uint64_t>(time[i]), address[i], size[i], stream[i],
                          extra[i], thread[i], site[i], flags[i], device[i],
                          static_cast<Kind>(kind[i])});
  }
  out.problems = reader.problems().size();
  return out;
}

// A file name of its own, removed with the object.
class TemporaryPath {
 public:
  TemporaryPath() {
    char name[] = "/tmp/gpumemtrace_test_XXXXXX";
    const int descriptor = mkstemp(name);
    if (descriptor >= 0) close(descriptor);
    unlink(name);
    path_ = name;
  }
  ~TemporaryPath() { unlink(path_.c_str()); }
  TemporaryPath(const TemporaryPath&) = delete;
  TemporaryPath& operator=(const TemporaryPath&) = delete;

  const std::string& name() const { return path_; }
  bool exists() const { return access(path_.c_str(), F_OK) == 0; }

 private:
  std::string path_;
};

inline ReadBack read_back(const std::vector<std::uint8_t>& bytes) {
  const TemporaryPath path;
  std::FILE* file = std::fopen(path.name().c_str(), "wb");
  std::fwrite(bytes.data(), 1, bytes.size(), file);
  std::fclose(file);
  return read_back(path.name());
}

}  // namespace gpumemtrace
