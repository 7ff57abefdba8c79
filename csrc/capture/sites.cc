#include "capture/sites.h"

#include "capture/json.h"

namespace gpumemtrace::capture {
namespace {

void begin_element(std::string& array, std::size_t number) {
  if (!array.empty()) array += ',';
  array += '[' + std::to_string(number);
}

void append_number(std::string& array, std::uint64_t number) {
  array += ',' + std::to_string(number);
}

void append_text(std::string& array, std::string_view text) {
  array += ',';
  append_json_string(array, text);
}

}  // namespace

SiteTable::SiteTable() = default;

SiteTable::~SiteTable() {
  for (std::atomic<Entry*>& block : blocks_) delete[] block.load(std::memory_order_relaxed);
}

std::size_t SiteTable::KeyHash::operator()(const Key& key) const noexcept {
  constexpr std::uint64_t kMultiplier = 0x9E3779B97F4A7C15ULL;
  const std::uint64_t mixed = (key.a ^ (key.b * kMultiplier)) * kMultiplier;
  return static_cast<std::size_t>(mixed ^ mixed >> 32);
}

std::uint32_t SiteTable::define_module(std::uint32_t root, std::string_view path) noexcept try {
  std::string key = std::to_string(root) + ':';
  key += path;
  const std::lock_guard guard(mutex_);
  if (const auto found = module_ids_.find(key); found != module_ids_.end()) return found->second;
  if (modules_.size() >= kMostModules) return 0;
  modules_.push_back({root, std::string(path)});
  const auto number = modules_before_ + static_cast<std::uint32_t>(modules_.size());
  module_ids_.emplace(std::move(key), number);
  tell();
  return number;
} catch (const std::bad_alloc&) {
  return 0;
}

std::uint32_t SiteTable::define_code(const CodeText& code) noexcept try {
  const std::lock_guard guard(mutex_);
  if (codes_.size() >= kMostCodes) return 0;
  codes_.push_back({std::string(code.file), std::string(code.name), std::string(code.line_table),
                    code.first_line, code.line_of});
  tell();
  return codes_before_ + static_cast<std::uint32_t>(codes_.size());
} catch (const std::bad_alloc&) {
  return 0;
}

std::uint32_t SiteTable::define_frame(std::uint32_t outer, std::uint32_t code,
                                      std::uint32_t instruction) noexcept try {
  const Key key{std::uint64_t{outer} << 32 | code, instruction};
  const std::lock_guard guard(mutex_);
  if (const auto found = frame_ids_.find(key); found != frame_ids_.end()) return found->second;
  if (frames_.size() >= kMostFrames) return 0;
  frames_.push_back({outer, code, instruction});
  const auto number = frames_before_ + static_cast<std::uint32_t>(frames_.size());
  frame_ids_.emplace(key, number);
  tell();
  return number;
} catch (const std::bad_alloc&) {
  return 0;
}

std::uint32_t SiteTable::define_site(const Site& site) noexcept try {
  const std::lock_guard guard(mutex_);
  return define_site_locked(site);
} catch (const std::bad_alloc&) {
  return 0;
}

std::uint32_t SiteTable::define_site_locked(const Site& site) {
  if (site.module == 0 && site.frame == 0 && site.state == StackState::kOff) return 0;
  const Key key{std::uint64_t{site.module} << 32 | site.frame,
                static_cast<std::uint64_t>(site.state)};
  if (const auto found = site_ids_.find(key); found != site_ids_.end()) return found->second;
  if (sites_ >= kMostSites) return 0;
  std::atomic<Entry*>& block = blocks_[sites_ / kEntriesPerBlock];
  if (block.load(std::memory_order_relaxed) == nullptr) {
    block.store(new Entry[kEntriesPerBlock], std::memory_order_release);
  }
  const std::uint32_t number = sites_before_.load(std::memory_order_relaxed) + sites_ + 1;
  site_ids_.emplace(key, number);
  ++sites_;
  Entry& made = *entry(number);
  made.module.store(site.module, std::memory_order_relaxed);
  made.frame.store(site.frame, std::memory_order_relaxed);
  made.state.store(site.state, std::memory_order_relaxed);
  clear_variants(made);
  tell();
  return number;
}

SiteTable::Entry* SiteTable::entry(std::uint32_t number) const noexcept {
  const std::uint32_t before = sites_before_.load(std::memory_order_relaxed);
  const std::size_t place = std::size_t{number} - before - 1;
  if (number <= before || place >= kMostSites) return nullptr;
  Entry* const block = blocks_[place / kEntriesPerBlock].load(std::memory_order_acquire);
  return block == nullptr ? nullptr : block + place % kEntriesPerBlock;
}

Site SiteTable::site(std::uint32_t number) const noexcept {
  const Entry* const made = entry(number);
  if (made == nullptr) return {};
  return {made->module.load(std::memory_order_relaxed), made->frame.load(std::memory_order_relaxed),
          made->state.load(std::memory_order_relaxed)};
}

std::uint32_t SiteTable::variant(std::uint32_t number, StackState state) noexcept {
  Entry* made = entry(number);
  if (made == nullptr) made = &nothing_;
  const std::uint32_t module = made->module.load(std::memory_order_relaxed);
  if (module == 0 && state == StackState::kOff) return 0;
  std::atomic<std::uint32_t>& variant = made->variants[static_cast<std::size_t>(state)];
  std::uint32_t found = variant.load(std::memory_order_relaxed);
  if (found == 0) {
    const bool keeps_frame = state == StackState::kForward;
    found =
        define_site({module, keeps_frame ? made->frame.load(std::memory_order_relaxed) : 0, state});
    variant.store(found, std::memory_order_relaxed);
  }
  return found;
}

void SiteTable::clear_variants(Entry& made) noexcept {
  for (std::atomic<std::uint32_t>& variant : made.variants) {
    variant.store(0, std::memory_order_relaxed);
  }
}

void SiteTable::begin_session() noexcept {
  const std::lock_guard guard(mutex_);
  modules_before_ += static_cast<std::uint32_t>(modules_.size());
  codes_before_ += static_cast<std::uint32_t>(codes_.size());
  frames_before_ += static_cast<std::uint32_t>(frames_.size());
  sites_before_.fetch_add(sites_, std::memory_order_relaxed);
  modules_.clear();
  codes_.clear();
  frames_.clear();
  sites_ = 0;
  module_ids_.clear();
  frame_ids_.clear();
  site_ids_.clear();
  clear_variants(nothing_);
  told_ = {};
  news_.store(false, std::memory_order_relaxed);
}

int SiteTable::line_of(const Frame& frame) const {
  if (frame.code <= codes_before_ || frame.code > codes_before_ + codes_.size()) return 0;
  const Code& code = codes_[frame.code - codes_before_ - 1];
  const CodeText text{code.file, code.name, code.line_table, code.first_line, code.line_of};
  return code.line_of == nullptr ? 0 : code.line_of(text, frame.instruction);
}

SiteTable::Tables SiteTable::collect() {
  const std::lock_guard guard(mutex_);
  news_.store(false, std::memory_order_relaxed);
  Tables tables;
  for (; told_.modules < modules_.size(); ++told_.modules) {
    const Module& module = modules_[told_.modules];
    begin_element(tables.modules, modules_before_ + told_.modules + 1);
    append_number(tables.modules, module.root);
    append_text(tables.modules, module.path);
    tables.modules += ']';
  }
  for (; told_.codes < codes_.size(); ++told_.codes) {
    const Code& code = codes_[told_.codes];
    begin_element(tables.codes, codes_before_ + told_.codes + 1);
    append_text(tables.codes, code.file);
    append_text(tables.codes, code.name);
    append_number(tables.codes, static_cast<std::uint64_t>(code.first_line));
    tables.codes += ']';
  }
  for (; told_.frames < frames_.size(); ++told_.frames) {
    const Frame& frame = frames_[told_.frames];
    begin_element(tables.frames, frames_before_ + told_.frames + 1);
    append_number(tables.frames, frame.outer);
    append_number(tables.frames, frame.code);
    append_number(tables.frames, static_cast<std::uint64_t>(line_of(frame)));
    tables.frames += ']';
  }
  for (; told_.sites < sites_; ++told_.sites) {
    const auto number =
        static_cast<std::uint32_t>(sites_before_.load(std::memory_order_relaxed) + told_.sites + 1);
    const Site site = this->site(number);
    begin_element(tables.sites, number);
    append_number(tables.sites, site.module);
    append_number(tables.sites, site.frame);
    append_number(tables.sites, static_cast<std::uint64_t>(site.state));
    tables.sites += ']';
  }
  return tables;
}

SiteTable& site_table() noexcept {
  static auto* table = new SiteTable;  // leaked: threads outlive static destructors
  return *table;
}

}  // namespace gpumemtrace::capture
