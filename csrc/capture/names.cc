#include "capture/names.h"

#include "capture/json.h"
#include "capture/name_log.h"

namespace gpumemtrace::capture {
namespace {

constexpr std::size_t kMostRemembered = 65'536;
constexpr std::size_t kMostPassing = 65'536;

void append_element(std::string& array, const std::string& numbers, const std::string& text) {
  if (!array.empty()) array += ',';
  array += '[' + numbers + ',';
  append_json_string(array, text);
  array += ']';
}

}  // namespace

std::uint32_t NameTable::define_phase(std::uint32_t parent, std::string_view name) {
  return define(true, parent, name);
}

std::uint32_t NameTable::define_string(std::string_view text) { return define(false, 0, text); }

std::uint32_t NameTable::define(bool is_phase, std::uint32_t parent, std::string_view text) {
  std::string key = (is_phase ? std::to_string(parent) : std::string("s")) + ':';
  key += text;
  const std::lock_guard guard(mutex_);
  if (const auto found = ids_.find(key); found != ids_.end()) return found->second;
  Name name{is_phase, is_phase ? next_phase_ : next_string_, parent, std::string(text)};
  const std::uint32_t id = name.id;
  if (log_ != nullptr) {
    if (is_phase) {
      log_->add_phase(id, parent, text);
    } else {
      log_->add_string(id, text);
    }
  }
  if (remembered_.size() < kMostRemembered) {
    remembered_.push_back(std::move(name));
    ids_.emplace(std::move(key), id);
  } else if (in_session_) {
    // The oldest half goes if nobody collects (a lazy session before its first event).
    if (passing_.size() == kMostPassing) {
      passing_.erase(passing_.begin(), passing_.begin() + kMostPassing / 2);
    }
    passing_.push_back(std::move(name));
  }
  ++(is_phase ? next_phase_ : next_string_);
  news_.store(true, std::memory_order_release);
  return id;
}

void NameTable::begin_session(NameLog* log) {
  const std::lock_guard guard(mutex_);
  log_ = log;
  collected_ = 0;
  passing_.clear();
  in_session_ = true;
  news_.store(!remembered_.empty(), std::memory_order_release);
}

void NameTable::end_session() {
  const std::lock_guard guard(mutex_);
  passing_.clear();
  in_session_ = false;
  log_ = nullptr;
}

void NameTable::collect(std::string& phases, std::string& strings) {
  const std::lock_guard guard(mutex_);
  news_.store(false, std::memory_order_relaxed);
  const auto append = [&](const Name& name) {
    if (name.is_phase) {
      append_element(phases, std::to_string(name.id) + ',' + std::to_string(name.parent),
                     name.text);
    } else {
      append_element(strings, std::to_string(name.id), name.text);
    }
  };
  for (; collected_ < remembered_.size(); ++collected_) append(remembered_[collected_]);
  for (const Name& name : passing_) append(name);
  passing_.clear();
}

NameTable& name_table() noexcept {
  static auto* table = new NameTable;  // leaked: threads outlive static destructors
  return *table;
}

}  // namespace gpumemtrace::capture
