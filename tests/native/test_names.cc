#include <doctest/doctest.h>

#include <string>

#include "capture/json.h"
#include "capture/names.h"

namespace gpumemtrace::capture {
namespace {

std::string quoted(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

struct Collected {
  std::string phases;
  std::string strings;
};

Collected collect(NameTable& table) {
  Collected out;
  table.collect(out.phases, out.strings);
  return out;
}

}  // namespace

TEST_CASE("any bytes become a JSON string") {
  CHECK(quoted("plain") == "\"plain\"");
  CHECK(quoted("a\"b\\c\n\x01") == "\"a\\\"b\\\\c\\u000a\\u0001\"");
  CHECK(quoted("gr\xC3\xBC\xC3\x9F \xE2\x82\xAC \xF0\x9F\x98\x80") ==
        "\"gr\xC3\xBC\xC3\x9F \xE2\x82\xAC \xF0\x9F\x98\x80\"");
  CHECK(quoted("\xFF!") == "\"\\ufffd!\"");
  CHECK(quoted("\xC3") == "\"\\ufffd\"");                               // cut short
  CHECK(quoted("\xC0\x80") == "\"\\ufffd\\ufffd\"");                    // overlong
  CHECK(quoted("\xED\xA0\x80") == "\"\\ufffd\\ufffd\\ufffd\"");         // a surrogate
  CHECK(quoted("\xF4\x90\x80\x80").find('\xF4') == std::string::npos);  // beyond Unicode
}

TEST_CASE("a key joins an object, whatever the object looks like") {
  CHECK(with_key(R"({"reason":"closed"})", "totals", "{}") == R"({"reason":"closed","totals":{}})");
  CHECK(with_key(" { } \n", "a", "1") == R"({"a":1})");
  CHECK(with_key("", "a", "1") == R"({"a":1})");
  CHECK(with_key("[1]", "a", "1") == R"({"a":1})");
  CHECK(with_key("{", "a", "1") == R"({"a":1})");
  CHECK(JsonObject().text() == "{}");
  CHECK(JsonObject().add("a", std::uint64_t{1}).add("b", "x").text() == R"({"a":1,"b":"x"})");
}

TEST_CASE("the same name gets the same number; phases are named within their parent") {
  NameTable table;
  const auto forward = table.define_phase(0, "forward");
  const auto block = table.define_phase(forward, "block");
  CHECK(forward == 1);
  CHECK(block == 2);
  CHECK(table.define_phase(0, "forward") == forward);
  CHECK(table.define_phase(0, "block") != block);
  CHECK(table.define_string("block") == 1);
  CHECK(table.define_string("block") == 1);
  CHECK(table.define_string("0:forward") == 2);  // no mixing of the two
}

TEST_CASE("names are told once a session, and again in the next one") {
  NameTable table;
  table.define_phase(0, "forward");
  table.begin_session();
  CHECK(table.has_news());
  CHECK(collect(table).phases == R"([1,0,"forward"])");
  CHECK_FALSE(table.has_news());
  CHECK(collect(table).phases.empty());
  table.define_string("x\"y");
  table.define_phase(1, "block");
  CHECK(table.has_news());
  const Collected more = collect(table);
  CHECK(more.phases == R"([2,1,"block"])");
  CHECK(more.strings == R"([1,"x\"y"])");
  table.define_string("x\"y");
  CHECK_FALSE(table.has_news());
  table.end_session();
  table.begin_session();
  const Collected again = collect(table);
  CHECK(again.phases == R"([1,0,"forward"],[2,1,"block"])");
  CHECK(again.strings == R"([1,"x\"y"])");
}

TEST_CASE("names without end take no memory without end") {
  NameTable table;
  table.begin_session();
  for (int i = 0; i < 70'000; ++i) table.define_string("loss " + std::to_string(i));
  CHECK(table.define_string("loss 5") == 6);  // among the first: remembered
  const auto late = table.define_string("loss 69999");
  CHECK(late == 70'001);  // beyond the limit: a new number,
  const Collected all = collect(table);
  CHECK(all.strings.find("[70000,\"loss 69999\"]") != std::string::npos);  // and yet each is told
  CHECK(all.strings.find("[70001,\"loss 69999\"]") != std::string::npos);
  table.end_session();
  table.define_string("while nobody listens");
  table.begin_session();
  CHECK(collect(table).strings.find("nobody") == std::string::npos);
}

}  // namespace gpumemtrace::capture
