#include "capture/json.h"

#include <cstdio>

namespace gpumemtrace::capture {
namespace {

unsigned char byte_at(std::string_view text, std::size_t at) {
  return static_cast<unsigned char>(text[at]);
}

// Length of the UTF-8 sequence at `at` (RFC 3629: no overlong forms, no surrogates), 0 = invalid.
std::size_t utf8_length(std::string_view text, std::size_t at) {
  const unsigned char lead = byte_at(text, at);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || at + length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte_at(text, at + i) & 0xC0) != 0x80) return 0;
  }
  const unsigned char second = byte_at(text, at + 1);
  if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) ||
      (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F)) {
    return 0;
  }
  return length;
}

}  // namespace

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text, at);
    const unsigned char first = byte_at(text, at);
    if (length == 0) {
      out += "\\ufffd";
    } else if (first == '"' || first == '\\') {
      out += '\\';
      out += text[at];
    } else if (first < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(first));
      out += escape;
    } else {
      out += text.substr(at, length);
    }
    at += length == 0 ? 1 : length;
  }
  out += '"';
}

void JsonObject::begin(std::string_view key) {
  body_ += body_.empty() ? '{' : ',';
  append_json_string(body_, key);
  body_ += ':';
}

JsonObject& JsonObject::add(std::string_view key, std::string_view text) {
  begin(key);
  append_json_string(body_, text);
  return *this;
}

JsonObject& JsonObject::add(std::string_view key, std::uint64_t number) {
  return add_raw(key, std::to_string(number));
}

JsonObject& JsonObject::add_raw(std::string_view key, std::string_view json) {
  begin(key);
  body_ += json;
  return *this;
}

std::string with_key(std::string_view object, std::string_view key, std::string_view json) {
  const std::size_t open = object.find_first_not_of(" \t\r\n");
  const std::size_t close = object.find_last_not_of(" \t\r\n");
  if (open == std::string_view::npos || open == close || object[open] != '{' ||
      object[close] != '}') {
    return JsonObject().add_raw(key, json).text();
  }
  const std::string_view inside = object.substr(open + 1, close - open - 1);
  const bool empty = inside.find_first_not_of(" \t\r\n") == std::string_view::npos;
  std::string out = "{";
  if (!empty) out.append(inside).append(",");
  append_json_string(out, key);
  return out.append(":").append(json).append("}");
}

std::vector<std::pair<std::string, std::string>> json_members(std::string_view object) {
  std::vector<std::pair<std::string, std::string>> members;
  std::string key;
  std::string text;
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < object.size(); ++i) {
    const char c = object[i];
    if (in_string) {
      text += c;
      if (c == '\\' && i + 1 < object.size()) text += object[++i];
      in_string = c != '"';
      continue;
    }
    const bool opens = c == '{' || c == '[';
    const bool closes = c == '}' || c == ']';
    depth += opens ? 1 : closes ? -1 : 0;
    if (depth == 1 && c == ':') {
      key.swap(text);
      text.clear();
    } else if ((depth == 1 && c == ',') || depth == 0) {
      if (!key.empty()) members.emplace_back(std::move(key), std::move(text));
      key.clear();
      text.clear();
    } else if (!(depth == 1 && c == '{') && !(c == ' ' || c == '\n' || c == '\t' || c == '\r')) {
      text += c;
      in_string = c == '"';
    }
  }
  return members;
}

}  // namespace gpumemtrace::capture
