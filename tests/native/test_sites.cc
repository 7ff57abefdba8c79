#include <doctest/doctest.h>

#include <memory>
#include <string>

#include "capture/sites.h"

namespace gpumemtrace::capture {
namespace {

int twice(const CodeText& code, std::uint32_t instruction) noexcept {
  return code.first_line + static_cast<int>(instruction) * 2;
}

}  // namespace

TEST_CASE("the same thing gets the same number") {
  const auto table = std::make_unique<SiteTable>();
  CHECK_FALSE(table->has_news());
  const std::uint32_t net = table->define_module(0, "Net");
  const std::uint32_t head = table->define_module(net, "head");
  CHECK(net == 1);
  CHECK(head == 2);
  CHECK(table->define_module(0, "Net") == net);
  CHECK(table->define_module(0, "head") != head);
  const std::uint32_t site = table->define_site({head, 0, StackState::kOff});
  CHECK(site == 1);
  CHECK(table->define_site({head, 0, StackState::kOff}) == site);
  CHECK(table->define_site({head, 0, StackState::kTooSmall}) == 2);
  CHECK(table->site(site).module == head);
  CHECK(table->site(2).state == StackState::kTooSmall);
  CHECK(table->has_news());
}

TEST_CASE("nothing at all is number 0") {
  const auto table = std::make_unique<SiteTable>();
  CHECK(table->define_site({}) == 0);
  CHECK(table->site(0).module == 0);
  CHECK(table->variant(0, StackState::kOff) == 0);
}

TEST_CASE("what backward does for a site, and a site without its stack") {
  const auto table = std::make_unique<SiteTable>();
  const std::uint32_t site = table->define_site({3, 4, StackState::kTaken});
  const std::uint32_t backward = table->variant(site, StackState::kForward);
  CHECK(table->site(backward).module == 3);
  CHECK(table->site(backward).frame == 4);
  CHECK(table->site(backward).state == StackState::kForward);
  CHECK(table->variant(site, StackState::kForward) == backward);
  const std::uint32_t plain = table->variant(backward, StackState::kOff);
  CHECK(plain == table->variant(site, StackState::kOff));
  CHECK(table->site(plain).module == 3);
  CHECK(table->site(plain).frame == 0);
  CHECK(table->variant(table->define_site({0, 4, StackState::kTaken}), StackState::kOff) == 0);
  const std::uint32_t small = table->variant(0, StackState::kTooSmall);
  CHECK(table->site(small).state == StackState::kTooSmall);
  CHECK(table->variant(0, StackState::kTooSmall) == small);
}

TEST_CASE("tables are told once, lines are looked up then, off the hot path") {
  const auto table = std::make_unique<SiteTable>();
  const std::string code_bytes = "x";
  const std::uint32_t code = table->define_code({"a \"b\".py", "f", code_bytes, 10, &twice});
  const std::uint32_t outer = table->define_frame(0, code, 1);
  const std::uint32_t inner = table->define_frame(outer, code, 5);
  CHECK(table->define_frame(outer, code, 5) == inner);
  table->define_site({table->define_module(0, "Net"), inner, StackState::kTaken});
  SiteTable::Tables told = table->collect();
  CHECK(told.modules == R"([1,0,"Net"])");
  CHECK(told.codes == R"([1,"a \"b\".py","f",10])");
  CHECK(told.frames == "[1,0,1,12],[2,1,1,20]");
  CHECK(told.sites == "[1,1,2,1]");
  CHECK_FALSE(table->has_news());
  CHECK(table->collect().empty());
  table->define_module(1, "head");
  CHECK(table->collect().modules == R"([2,1,"head"])");
}

TEST_CASE("a session begins with empty tables, and with numbers that no session had before") {
  const auto table = std::make_unique<SiteTable>();
  const std::uint32_t net = table->define_module(0, "Net");
  const std::uint32_t old = table->define_site({net, 0, StackState::kOff});
  CHECK(table->variant(old, StackState::kForward) == 2);
  table->begin_session();
  CHECK_FALSE(table->has_news());
  CHECK(table->site(old).module == 0);
  CHECK(table->variant(old, StackState::kOff) == 0);
  CHECK(table->variant(old, StackState::kForward) == 3);  // of nothing that is known
  CHECK(table->define_module(0, "Net") == 2);
  CHECK(table->define_site({2, 0, StackState::kOff}) == 4);
  CHECK(table->variant(4, StackState::kForward) == 5);
  const SiteTable::Tables told = table->collect();
  CHECK(told.modules == R"([2,0,"Net"])");
  CHECK(told.sites == "[3,0,0,2],[4,2,0,0],[5,2,0,2]");
}

TEST_CASE("beyond the limit nothing has a number, and nothing breaks") {
  const auto table = std::make_unique<SiteTable>();
  for (std::uint32_t i = 0; i < SiteTable::kMostModules; ++i) {
    REQUIRE(table->define_module(i + 1, "m") == i + 1);
  }
  CHECK(table->define_module(0, "one more") == 0);
  CHECK(table->define_module(1, "m") == 1);
  for (std::uint32_t i = 0; i < SiteTable::kMostSites; ++i) {
    REQUIRE(table->define_site({1, i, StackState::kTaken}) == i + 1);
  }
  CHECK(table->define_site({2, 0, StackState::kTaken}) == 0);
  CHECK(table->variant(1, StackState::kForward) == 0);
  CHECK(table->site(SiteTable::kMostSites).frame == SiteTable::kMostSites - 1);
}

}  // namespace gpumemtrace::capture
