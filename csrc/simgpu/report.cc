#include "report.h"

#include <atomic>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "config.h"
#include "fork.h"
#include "kernels.h"

namespace simgpu {
namespace {

struct Entry {
  std::string what;
  uint64_t calls = 0;
};

struct Book {
  std::mutex mutex;
  std::map<std::string, Entry> entries;
  std::atomic<uint64_t> version{1};
  std::atomic<uint64_t> unknown_reads{0};
};

Book& book() {
  static Book* const the_book = [] {
    auto* made = new Book;  // leaked: calls come in until the process is gone
    hold_across_fork(made->mutex);
    return made;
  }();
  return *the_book;
}

// Returns whether the name is new.
bool count(const char* name, const char* what) {
  Book& b = book();
  const std::lock_guard lock(b.mutex);
  auto [entry, is_new] = b.entries.try_emplace(name);
  if (is_new) {
    entry->second.what = what;
    b.version.fetch_add(1, std::memory_order_relaxed);
  }
  ++entry->second.calls;
  return is_new;
}

void append_string(std::string& json, const std::string& text) {
  json += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      json += '\\';
      json += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(c));
      json += escape;
    } else {
      json += c;
    }
  }
  json += '"';
}

void append_entry(std::string& json, const std::string& name, const std::string& calls,
                  const std::string& what) {
  json += json.size() > 1 ? ", {\"name\": " : "{\"name\": ";
  append_string(json, name);
  json += ", \"calls\": " + calls + ", \"what\": ";
  append_string(json, what);
  json += '}';
}

std::string context_figure() {
  const uint64_t bytes = config().context_bytes;
  if (bytes == 0) return "the context takes none here, on a real card some hundred MiB";
  char text[64];
  std::snprintf(text, sizeof text, "the context is a fixed figure, %.1f MiB",
                static_cast<double>(bytes) / (1 << 20));
  return text;
}

std::string write_report() {
  std::string json = "[";
  Book& b = book();
  append_entry(json, "kernels and BLAS", "null",
               "do nothing: what they would have written reads as zeros, so branches and shapes "
               "that depend on it may differ from a real run");
  if (const uint64_t reads = b.unknown_reads.load(std::memory_order_relaxed); reads > 0) {
    append_entry(json, "values read from the device", std::to_string(reads),
                 "came as zeros (.item(), .cpu(), conditions and sizes taken from tensors)");
  }
  append_entry(json, "device memory outside the allocator", "null",
               context_figure() +
                   "; kernel code, library handles and graphs take none, "
                   "communicators what GPUMEMTRACE_SIM_NCCL_BYTES says");
  for_each_watched_kernel([&json](const char* name, const char* what, uint64_t launches) {
    append_entry(json, name, std::to_string(launches), what);
  });
  const std::lock_guard lock(b.mutex);
  for (const auto& [name, entry] : b.entries) {
    append_entry(json, name, std::to_string(entry.calls), entry.what);
  }
  json += ']';
  return json;
}

}  // namespace

void count_approximation(const char* name, const char* what) noexcept { count(name, what); }

void count_refusal(const char* name) noexcept {
  if (!count(name, "refused: not simulated, the call failed")) return;
  std::fprintf(stderr, "gpumemtrace simulate: %s is not simulated; the call fails\n", name);
}

void count_unknown_read() noexcept {
  Book& b = book();
  if (b.unknown_reads.fetch_add(1, std::memory_order_relaxed) == 0) {
    b.version.fetch_add(1, std::memory_order_relaxed);
  }
}

}  // namespace simgpu

size_t gpumemtrace_sim_report(char* out, size_t capacity) {
  const std::string json = simgpu::write_report();
  if (capacity > 0) {
    const size_t copied = json.size() < capacity ? json.size() : capacity - 1;
    std::memcpy(out, json.data(), copied);
    out[copied] = '\0';
  }
  return json.size() + 1;
}

uint64_t gpumemtrace_sim_report_version(void) {
  return simgpu::book().version.load(std::memory_order_relaxed) + simgpu::watched_kernels_seen();
}

void gpumemtrace_sim_note(const char* name, const char* what) { simgpu::count(name, what); }
