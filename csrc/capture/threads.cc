#include "capture/threads.h"

#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "capture/name_log.h"

namespace gpumemtrace::capture {

std::uint32_t ThreadRegistry::add_current() noexcept {
  ThreadEntry entry{};
  entry.os_tid = static_cast<pid_t>(syscall(SYS_gettid));
  prctl(PR_GET_NAME, entry.name);
  try {
    const std::lock_guard guard(mutex_);
    entries_.push_back(entry);
    size_.store(entries_.size(), std::memory_order_release);
    if (log_ != nullptr) {
      log_->add_thread(static_cast<std::uint32_t>(entries_.size()),
                       static_cast<std::uint32_t>(entry.os_tid), entry.name);
    }
    return static_cast<std::uint32_t>(entries_.size());
  } catch (...) {
    return 0;
  }
}

void ThreadRegistry::copy_from(std::size_t first, std::vector<ThreadEntry>& out) const {
  const std::lock_guard guard(mutex_);
  for (std::size_t i = first; i < entries_.size(); ++i) out.push_back(entries_[i]);
}

ThreadRegistry& thread_registry() noexcept {
  static auto* registry = new ThreadRegistry;  // leaked: threads outlive static destructors
  return *registry;
}

}  // namespace gpumemtrace::capture
