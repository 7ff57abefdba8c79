// What made an event, as a number: the module that ran, and the call site.
//
//   site     (module, frame, state)      frame 0 = none: `state` says why
//   module   (root module, path in it)   root 0 = it is a root, by its name
//   frame    (frame that called it, code, instruction): a tree, so that stacks share their outer part
//   code     a function: file, name, and where its lines are
//
// The file tells each once, before the first event that needs it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trace/event.h"
#include "trace/export.h"

namespace gpumemtrace::capture {

struct Site {
  std::uint32_t module = 0;
  std::uint32_t frame = 0;
  StackState state = StackState::kOff;
};

// A function as its lines are looked up: by the drain thread, which knows no Python. Plain data, for
// libraries with another std::string.
struct CodeText {
  std::string_view file;
  std::string_view name;
  std::string_view line_table;
  int first_line = 0;
  // The line of an instruction; 0 = unknown. Called with copies of the fields above, at any time
  // until the process ends.
  int (*line_of)(const CodeText& code, std::uint32_t instruction) noexcept = nullptr;
};

// Any thread. Each session begins with empty tables, but numbers go on: one that is left over from an
// earlier session is nobody's in the next. Beyond the limits a define_ returns 0.
class GPUMEMTRACE_API SiteTable {
 public:
  static constexpr std::uint32_t kMostModules = 1U << 16;
  static constexpr std::uint32_t kMostCodes = 1U << 16;
  static constexpr std::uint32_t kMostFrames = 1U << 18;
  static constexpr std::uint32_t kMostSites = 1U << 18;

  SiteTable();
  ~SiteTable();
  SiteTable(const SiteTable&) = delete;
  SiteTable& operator=(const SiteTable&) = delete;

  // The same arguments give the same number. Each takes a lock and may allocate; none throws.
  std::uint32_t define_module(std::uint32_t root, std::string_view path) noexcept;
  std::uint32_t define_frame(std::uint32_t outer, std::uint32_t code,
                             std::uint32_t instruction) noexcept;
  std::uint32_t define_site(const Site& site) noexcept;
  // A new number each time: whoever calls knows its code objects.
  std::uint32_t define_code(const CodeText& code) noexcept;

  // Of a number that define_site has returned; Site{} for 0 and for one of an earlier session. No
  // lock.
  Site site(std::uint32_t number) const noexcept;
  // The site of the same module in another state: kForward keeps the frame, the others have none. Not
  // for kTaken. A lock the first time only.
  std::uint32_t variant(std::uint32_t number, StackState state) noexcept;

  void begin_session() noexcept;
  // Cheap: whether collect() would find anything. acquire <- release in define_.
  bool has_news() const noexcept { return news_.load(std::memory_order_acquire); }
  // Appends what is new as elements of JSON arrays: [id,root,"path"], [id,outer,code,line],
  // [id,"file","name",first line], [id,module,frame,state]. One thread at a time.
  struct Tables {
    std::string modules, codes, frames, sites;
    bool empty() const noexcept {
      return modules.empty() && codes.empty() && frames.empty() && sites.empty();
    }
  };
  Tables collect();

  // Around fork: the forking thread holds the lock, so that the child finds it whole.
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  struct Module {
    std::uint32_t root;
    std::string path;
  };
  struct Code {
    std::string file, name, line_table;
    int first_line;
    int (*line_of)(const CodeText&, std::uint32_t) noexcept;
  };
  struct Frame {
    std::uint32_t outer, code, instruction;
  };
  // `site` is written before its number is handed out, the others when they are found out. All of it
  // is relaxed: who has a number, has it from whoever wrote; an old session's number, looked up just
  // as the next one begins, may find anything, and that event is of neither.
  struct Entry {
    std::atomic<std::uint32_t> module{0}, frame{0};
    std::atomic<StackState> state{StackState::kOff};
    std::array<std::atomic<std::uint32_t>, kStackStates> variants{};  // 0 = not found out
  };
  static constexpr std::size_t kEntriesPerBlock = 1024;

  static void clear_variants(Entry& made) noexcept;
  std::uint32_t define_site_locked(const Site& site);
  // nullptr: not of this session.
  Entry* entry(std::uint32_t number) const noexcept;
  int line_of(const Frame& frame) const;
  void tell() noexcept { news_.store(true, std::memory_order_release); }

  std::mutex mutex_;
  // How many numbers earlier sessions took; what comes after is number - 1 in the tables.
  std::uint32_t modules_before_ = 0, codes_before_ = 0, frames_before_ = 0;
  std::atomic<std::uint32_t> sites_before_{0};
  Entry nothing_;  // number 0
  std::vector<Module> modules_;
  std::vector<Code> codes_;
  std::vector<Frame> frames_;
  std::uint32_t sites_ = 0;
  // release (define_site) -> acquire (entry): blocks never move.
  std::array<std::atomic<Entry*>, kMostSites / kEntriesPerBlock> blocks_{};
  std::unordered_map<std::string, std::uint32_t> module_ids_;
  struct Key {
    std::uint64_t a, b;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const noexcept;
  };
  std::unordered_map<Key, std::uint32_t, KeyHash> frame_ids_, site_ids_;
  struct Told {
    std::size_t modules = 0, codes = 0, frames = 0, sites = 0;
  } told_;
  std::atomic<bool> news_{false};
};

// Lives for the whole process, through exit.
GPUMEMTRACE_API SiteTable& site_table() noexcept;

}  // namespace gpumemtrace::capture
