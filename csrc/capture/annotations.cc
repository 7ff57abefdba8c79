#include "capture/annotations.h"

#include <algorithm>
#include <utility>

#include "capture/json.h"
#include "capture/names.h"
#include "capture/producer_state.h"
#include "capture/sites.h"
#include "capture/threads.h"

namespace gpumemtrace::capture {
namespace {

constexpr std::size_t kMostSourceBytes = std::size_t{64} << 10;

}  // namespace

void Annotations::write_new_names(TraceOutput& output) {
  if (!output.is_open()) return;
  const ThreadRegistry& registry = thread_registry();
  if (names_started_ && !name_table().has_news() && !site_table().has_news() &&
      registry.size() == threads_written_) {
    return;
  }
  names_started_ = true;
  if (log_ != nullptr) log_->turn();  // before the tables are read: what comes in between stays
  std::string phases;
  std::string strings;
  name_table().collect(phases, strings);
  std::vector<ThreadEntry> entries;
  registry.copy_from(threads_written_, entries);
  std::string threads;
  for (const ThreadEntry& entry : entries) {
    if (!threads.empty()) threads += ',';
    threads += '[' + std::to_string(++threads_written_) + ',' + std::to_string(entry.os_tid) + ',';
    append_json_string(threads, entry.name);
    threads += ']';
  }
  const SiteTable::Tables sites = site_table().collect();
  if (phases.empty() && strings.empty() && threads.empty() && sites.empty()) return;
  JsonObject names;
  names.add_raw("phases", '[' + phases + ']')
      .add_raw("strings", '[' + strings + ']')
      .add_raw("threads", '[' + threads + ']');
  if (!sites.empty()) {
    names.add_raw("modules", '[' + sites.modules + ']')
        .add_raw("codes", '[' + sites.codes + ']')
        .add_raw("frames", '[' + sites.frames + ']')
        .add_raw("sites", '[' + sites.sites + ']');
  }
  output.write_names(names.text());
}

void Annotations::add_metadata(const std::string& json) {
  const std::lock_guard guard(mutex_);
  added_.push_back(json);
}

void Annotations::write_new_metadata(TraceOutput& output) {
  std::vector<std::string> added;
  {
    const std::lock_guard guard(mutex_);
    added.swap(added_);
  }
  for (std::string& json : added) output.write_metadata(std::move(json));
}

void Annotations::write_source_metadata(TraceOutput& output) {
  const MetadataSource source = metadata_source();
  if (source == nullptr || !output.is_open()) return;
  std::string said(kMostSourceBytes, '\0');
  said.resize(std::min(source(said.data(), said.size()), said.size()));
  if (said.empty() || said == source_said_) return;
  source_said_ = said;
  output.write_metadata(std::move(said));
}

}  // namespace gpumemtrace::capture
