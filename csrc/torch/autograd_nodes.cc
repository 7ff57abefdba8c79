#include "torch/autograd_nodes.h"

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>
#include <pthread.h>
#include <torch/csrc/autograd/function.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <mutex>
#include <new>
#include <vector>

#include "capture/forward_log.h"

namespace gpumemtrace::hook {
namespace {

using capture::ForwardLog;

constexpr std::uint64_t kNoNumber = UINT64_MAX;  // torch's, of AccumulateGrad

// By torch's number of a thread, which counts up; of threads beyond, nodes are not known. release
// (claim) -> acquire (running_node). A log outlives its thread, for another one: a node that is
// run later still finds nothing wrong, since the entry here is gone.
constinit std::array<std::atomic<ForwardLog*>, 1024> g_logs{};

constinit std::atomic<std::uint64_t> g_looks{1};  // moves with skip_nodes()

std::mutex& unused_mutex() {
  static auto* mutex = [] {
    // A child of fork must not find it locked by a thread that it hasn't got.
    pthread_atfork([] { unused_mutex().lock(); }, [] { unused_mutex().unlock(); },
                   [] { unused_mutex().unlock(); });
    return new std::mutex;
  }();
  return *mutex;
}
std::vector<ForwardLog*>& unused_logs() {
  static auto* logs = new std::vector<ForwardLog*>;
  return *logs;
}

// This thread's log, as long as it lives.
class Lease {
 public:
  Lease() = default;
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  ~Lease() {
    if (log_ == nullptr) return;
    g_logs[thread_].store(nullptr, std::memory_order_release);
    const std::lock_guard guard(unused_mutex());
    unused_logs().push_back(log_);
  }

  ForwardLog* take() noexcept try {
    thread_ = at::RecordFunction::currentThreadId();
    if (thread_ >= g_logs.size()) return nullptr;
    {
      const std::lock_guard guard(unused_mutex());
      unused_logs().reserve(g_logs.size());  // giving back must not throw
      if (!unused_logs().empty()) {
        log_ = unused_logs().back();
        unused_logs().pop_back();
        log_->clear();
      }
    }
    if (log_ == nullptr) log_ = new ForwardLog;
    g_logs[thread_].store(log_, std::memory_order_release);
    return log_;
  } catch (const std::exception&) {
    return nullptr;
  }

 private:
  ForwardLog* log_ = nullptr;
  std::uint64_t thread_ = 0;
};

struct Mine {
  ForwardLog* log = nullptr;
  bool has_asked = false;
  std::uint64_t looks = 0;
  std::uint32_t last_site = 0;  // of the node that ran last in this thread
};
__attribute__((tls_model("initial-exec"))) constinit thread_local Mine t_mine;

ForwardLog* ask_for_log() noexcept {
  thread_local Lease lease;
  t_mine.has_asked = true;
  return t_mine.log = lease.take();
}

}  // namespace

void claim_nodes(std::uint32_t site) noexcept {
  ForwardLog* log = t_mine.log;
  if (log == nullptr) {
    if (t_mine.has_asked) return;
    log = ask_for_log();
    if (log == nullptr) return;
  }
  const std::uint64_t next = at::sequence_number::peek();
  const std::uint64_t looks = g_looks.load(std::memory_order_relaxed);
  if (t_mine.looks != looks) [[unlikely]] {
    t_mine.looks = looks;
    log->skip_to(next);
    return;
  }
  log->claim(next, site);
}

void skip_nodes() noexcept { g_looks.fetch_add(1, std::memory_order_relaxed); }

RunningNode running_node() noexcept {
  const auto node = torch::autograd::get_current_node();
  if (!node) return {false, 0};
  const std::uint64_t number = node->sequence_nr();
  if (number == kNoNumber) return {true, t_mine.last_site};
  const std::uint64_t thread = node->thread_id();
  const ForwardLog* log =
      thread < g_logs.size() ? g_logs[thread].load(std::memory_order_acquire) : nullptr;
  t_mine.last_site = log == nullptr ? 0 : log->find(number);
  return {true, t_mine.last_site};
}

}  // namespace gpumemtrace::hook
