// Processes that were killed while they recorded, and what they left. A killed process is a forked
// child.
#pragma once

#include <doctest/doctest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <system_error>
#include <vector>

#include "capture/producer.h"
#include "capture/recovery.h"
#include "capture/segment.h"
#include "capture/session.h"
#include "read_back.h"

namespace gpumemtrace::capture {

namespace fs = std::filesystem;

// Where the segments of this program lie. In the folder that all processes share, any session that
// begins on the machine would recover what a killed child left before the test looks at it.
class SharedFolder {
 public:
  SharedFolder() : path_(std::string(kSharedMemoryFolder) + "/gpumemtrace-tests-XXXXXX") {
    if (::mkdtemp(path_.data()) == nullptr) std::perror(path_.c_str());
  }
  ~SharedFolder() {
    std::error_code ignored;
    if (::getpid() == owner_) fs::remove_all(path_, ignored);
  }
  SharedFolder(const SharedFolder&) = delete;
  SharedFolder& operator=(const SharedFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  pid_t owner_ = ::getpid();  // not a child that was forked
  std::string path_;
};

// Made before any child is.
inline const SharedFolder g_shared_folder;

inline const std::string& shared_folder() { return g_shared_folder.path(); }

inline bool record(std::uint64_t address) {
  Ring* ring = active_ring();
  if (ring == nullptr) return false;
  Event event{};
  event.kind = Kind::kAlloc;
  event.address = address;
  event.size = 512;
  return push(ring, event);
}

inline SessionOptions to(const TemporaryPath& path) {
  SessionOptions options;
  options.path = path.name();
  options.shared_memory_folder = shared_folder();
  options.ring_bytes = 1 << 16;
  options.drain_interval_ms = 1;
  return options;
}

// A drain that gets no turn while the test runs: all stays in the ring.
inline SessionOptions undrained(const TemporaryPath& path) {
  SessionOptions options = to(path);
  options.drain_interval_ms = 3'600'000;
  return options;
}

// Runs `work` in a child that then kills itself; returns when it is dead.
inline void in_killed_child(const std::function<void()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    work();
    raise(SIGKILL);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
}

inline std::string segment_of(const std::string& path) {
  const std::string metadata = read_back(path).metadata;
  const std::string key = R"("segment":")";
  const std::size_t at = metadata.find(key);
  return at == std::string::npos ? "" : metadata.substr(at + key.size(), kSegmentNameBytes);
}

inline std::string shared(const std::string& name) { return shared_folder() + '/' + name; }

inline Recovery recover_own(const std::string& path, const std::string& segment) {
  return recover(path, segment, shared_folder());
}

// A name that no recorder gave; removed with the object.
class OwnSegment {
 public:
  OwnSegment() : name_(std::string("gpumemtrace-") + std::string(26, '0')) {
    static int count = 0;
    char rest[7];
    std::snprintf(rest, sizeof rest, "%06x",
                  static_cast<unsigned>((getpid() << 8 | (++count & 0xff)) & 0xffffff));
    name_ += rest;
  }
  ~OwnSegment() { unlink(path().c_str()); }
  OwnSegment(const OwnSegment&) = delete;
  OwnSegment& operator=(const OwnSegment&) = delete;
  const std::string& name() const { return name_; }
  std::string path() const { return shared(name_); }

 private:
  std::string name_;
};

// The trace as a reader has it after the recovery.
inline ReadBack read_recovered(const std::string& path, const Recovery& done) {
  if (done.outcome != RecoveryOutcome::kInMemory) return read_back(path);
  std::ifstream file(path, std::ios::binary);
  std::vector<std::uint8_t> bytes((std::istreambuf_iterator<char>(file)), {});
  bytes.resize(static_cast<std::size_t>(done.offset));
  bytes.insert(bytes.end(), done.tail.begin(), done.tail.end());
  return read_back(bytes);
}

inline void check_addresses(const ReadBack& trace, std::uint64_t count) {
  std::uint64_t next = 0;
  std::uint64_t last_time = 0;
  for (const Event& event : trace.events) {
    if (event.kind != Kind::kAlloc) continue;
    CHECK(event.address == next++);
    CHECK(event.time >= last_time);
    last_time = event.time;
  }
  CHECK(next == count);
}

}  // namespace gpumemtrace::capture
