// A process killed at each instant at which its file changes: "as if killed here" is a copy of file
// and segment.
#include <doctest/doctest.h>

#include <fstream>
#include <memory>
#include <string>

#include "capture/drain.h"
#include "capture/recovery.h"
#include "capture/segment.h"
#include "killed.h"
#include "trace/sink.h"

namespace gpumemtrace::capture {

TEST_CASE("as if killed before, within and after every write: nothing is doubled, nothing lost") {
  const TemporaryPath path;
  const TemporaryPath copy_path;
  const OwnSegment copy_segment;
  Segment segment({.ring_capacity = 64, .folder = shared_folder()});
  REQUIRE(segment.why_private().empty());
  Ring ring({.capacity = 64, .start_position = UINT64_MAX - 30, .memory = segment.ring_memory()});
  NameLog log(segment.names());
  std::uint64_t pushed = 0;
  int looks = 0;
  int closed_looks = 0;

  // With `torn` bytes more than the file has, of a chunk that was being written.
  const auto look = [&](const void* torn, std::size_t torn_bytes) {
    if (!fs::exists(shared(segment.name()))) return;
    fs::copy_file(path.name(), copy_path.name(), fs::copy_options::overwrite_existing);
    {
      std::ofstream file(copy_path.name(), std::ios::binary | std::ios::app);
      file.write(static_cast<const char*>(torn), static_cast<std::streamsize>(torn_bytes));
    }
    fs::copy_file(shared(segment.name()), copy_segment.path(),
                  fs::copy_options::overwrite_existing);
    const Recovery done = recover_own(copy_path.name(), copy_segment.name());
    if (read_back(copy_path.name()).footer.empty()) {
      CHECK(done.outcome == RecoveryOutcome::kInMemory);
      CHECK(done.why == "this is a copy; the file that was recorded to is " + path.name());
    } else {
      ++closed_looks;
    }
    const ReadBack trace = read_recovered(copy_path.name(), done);
    CHECK(trace.problems == 0);
    check_addresses(trace, pushed);
    ++looks;
  };

  class LookedAtSink final : public Sink {
   public:
    LookedAtSink(const std::string& file, decltype(look)& looker)
        : file_(file, false), look_(looker) {}
    bool write(const void* data, std::size_t size_bytes) noexcept override {
      look_(data, 0);
      look_(data, size_bytes / 3);
      look_(data, size_bytes - 1);
      const bool written = file_.write(data, size_bytes);
      look_(data, 0);
      return written;
    }
    bool close() noexcept override { return file_.close(); }

   private:
    FileSink file_;
    decltype(look)& look_;
  };

  DrainOptions options;
  options.ring = &ring;
  options.segment = &segment;
  options.name_log = &log;
  options.flush_interval_ns = 0;
  options.device_sample_interval_ns = 0;
  options.output.path = path.name();
  options.output.stage = segment.stage();
  options.output.make_sink = [&] { return std::make_unique<LookedAtSink>(path.name(), look); };
  options.output.warn = [](const std::string&) {};
  Drain drain(options, read_clock_pair());
  drain.add_metadata("{}");
  drain.open();
  look(nullptr, 0);
  for (int round = 0; round < 40; ++round) {
    for (int i = 0; i < round % 50; ++i) {
      Event event{};
      event.kind = Kind::kAlloc;
      event.address = pushed;
      REQUIRE(push(&ring, event));
      ++pushed;
    }
    if (round % 7 == 0) drain.add_metadata(R"({"round":1})");  // written before what is staged
    look(nullptr, 0);
    drain.pass();
    look(nullptr, 0);
  }
  drain.finish("{}");
  CHECK(looks > 200);
  CHECK(closed_looks > 0);
}

}  // namespace gpumemtrace::capture
