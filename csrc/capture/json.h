// The little JSON that the capture side writes itself.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gpumemtrace::capture {

// Appends `text` as a JSON string. Bytes that are not UTF-8 become U+FFFD: thread names and file
// names come from outside.
void append_json_string(std::string& out, std::string_view text);

// "key": value pairs of one object, in the order given.
class JsonObject {
 public:
  JsonObject& add(std::string_view key, std::string_view text);
  JsonObject& add(std::string_view key, std::uint64_t number);
  JsonObject& add_raw(std::string_view key, std::string_view json);
  std::string text() const { return body_.empty() ? "{}" : body_ + '}'; }

 private:
  void begin(std::string_view key);
  std::string body_;
};

// `object` (a JSON object) with one more key behind its own; not an object: a new one.
std::string with_key(std::string_view object, std::string_view key, std::string_view json);

// Key and value of each member, as they are written; quotes around keys stay. Only for well-formed
// JSON, which our own is: of other text it returns what it makes of it.
std::vector<std::pair<std::string, std::string>> json_members(std::string_view object);

}  // namespace gpumemtrace::capture
