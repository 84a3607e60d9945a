#include "trainer/checkpoint/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "core/base/xxh3.h"
#include "spillway/error.h"

namespace spillway {
namespace {

constexpr std::string_view kFirstLine = "spillway-checkpoint ", kLastLine = "xxh3 ";
constexpr std::size_t kHexDigits = 32;

/// Separate lines and words; escaped text does not contain these bytes.
bool is_escaped(char c, bool is_word) {
  return static_cast<unsigned char>(c) < 0x20 || c == '%' || c == 0x7F || (is_word && c == ' ');
}

std::string escaped(std::string_view text, bool is_word) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    if (!is_escaped(c, is_word)) {
      out += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      out += {'%', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return out;
}

[[noreturn]] void fail(const std::string& problem) { throw Error(problem); }

std::uint64_t number(std::string_view text, int base = 10) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size())
    fail(fmt::format("has '{}' instead of a number", text));
  return value;
}

std::string unescaped(std::string_view text) {
  std::string out;
  for (; !text.empty(); text.remove_prefix(1)) {
    if (text[0] != '%') {
      out += text[0];
    } else {
      if (text.size() < 3) fail("ends within an escaped byte");
      out += static_cast<char>(number(text.substr(1, 2), 16));
      text.remove_prefix(2);
    }
  }
  return out;
}

void check_file(const ManifestFile& file, Bytes block_bytes, std::set<std::string>& names) {
  const bool plain = !file.name.empty() && file.name != "." && file.name != ".." &&
                     file.name != "MANIFEST" && file.name.find('/') == std::string::npos &&
                     file.name.find('\0') == std::string::npos;
  if (!plain) fail(fmt::format("has '{}' instead of the name of a data file", file.name));
  if (!names.insert(file.name).second) fail(fmt::format("names '{}' twice", file.name));
  if (file.blocks.size() != num_blocks(file.bytes, block_bytes))
    fail(fmt::format("has {} blocks of '{}', not {}", file.blocks.size(), file.name,
                     num_blocks(file.bytes, block_bytes)));
  for (const auto& hash : file.blocks) {
    const bool is_hash = hash.size() == kHexDigits &&
                         hash.find_first_not_of("0123456789abcdef") == std::string::npos;
    if (!is_hash) fail(fmt::format("has '{}' instead of a hash", hash));
  }
}

void check(const Manifest& manifest) {
  if (manifest.version == 0 || manifest.version > Manifest::kVersion)
    fail(fmt::format("has version {}", manifest.version));
  if (manifest.block_bytes == 0 || manifest.block_bytes > Manifest::kMaxBlockBytes)
    fail(fmt::format("has blocks of {} bytes", manifest.block_bytes));
  std::set<std::string> names;
  for (const auto& file : manifest.files) check_file(file, manifest.block_bytes, names);
}

/// Reads lines from the front of a text.
class Lines {
 public:
  explicit Lines(std::string_view rest) : rest_(rest) {}
  bool at_end() const { return rest_.empty(); }
  bool next_is(std::string_view key) const { return rest_.starts_with(key); }
  /// The rest of the next line after `key`, which must start the line.
  std::string_view take(std::string_view key) {
    const auto end = rest_.find('\n');
    if (!next_is(key) || end == std::string_view::npos) fail(fmt::format("lacks a line '{}'", key));
    const auto line = rest_.substr(key.size(), end - key.size());
    rest_.remove_prefix(end + 1);
    return line;
  }

 private:
  std::string_view rest_;
};

/// "first rest" as its two parts.
std::pair<std::string_view, std::string_view> parts(std::string_view line) {
  const auto space = line.find(' ');
  if (space == std::string_view::npos) fail("has a line with one word instead of two");
  return {line.substr(0, space), line.substr(space + 1)};
}

ManifestFile take_file(Lines& lines) {
  const auto [bytes, name] = parts(lines.take("file "));
  ManifestFile file{.name = unescaped(name), .bytes = number(bytes)};
  while (lines.next_is("block ")) file.blocks.emplace_back(lines.take("block "));
  return file;
}

Manifest take_manifest(Lines lines) {
  Manifest manifest;
  manifest.version = number(lines.take(kFirstLine));
  manifest.job = unescaped(lines.take("job "));
  manifest.step = number(lines.take("step "));
  manifest.build = unescaped(lines.take("build "));
  while (lines.next_is("contract ")) {
    const auto [field, value] = parts(lines.take("contract "));
    manifest.contract[unescaped(field)] = unescaped(value);
  }
  manifest.block_bytes = number(lines.take("block_bytes "));
  while (!lines.at_end()) manifest.files.push_back(take_file(lines));
  return manifest;
}

std::string body_of(const Manifest& manifest) {
  const auto line = [](std::string_view key, const std::string& value) {
    return fmt::format("{}{}\n", key, value);
  };
  std::string text = line(kFirstLine, fmt::to_string(manifest.version)) +
                     line("job ", escaped(manifest.job, false)) +
                     line("step ", fmt::to_string(manifest.step)) +
                     line("build ", escaped(manifest.build, false));
  for (const auto& [field, value] : manifest.contract)
    text += line("contract ", escaped(field, true) + ' ' + escaped(value, false));
  text += line("block_bytes ", fmt::to_string(manifest.block_bytes));
  for (const auto& file : manifest.files) {
    text += line("file ", fmt::format("{} {}", file.bytes, escaped(file.name, false)));
    for (const auto& hash : file.blocks) text += line("block ", hash);
  }
  return text;
}

std::string last_line(std::string_view body) {
  return std::string(kLastLine) + xxh3(std::as_bytes(std::span(body))) + '\n';
}

/// The text without its last line, which every version has.
std::string_view checked_body(std::string_view text) {
  constexpr std::size_t kLength = kLastLine.size() + kHexDigits + 1;
  if (text.size() < kLength) fail("is too short for a manifest");
  const auto body = text.substr(0, text.size() - kLength);
  if (text.substr(body.size()) != last_line(body)) fail("does not match the hash in its last line");
  return body;
}

}  // namespace

std::uint64_t num_blocks(Bytes bytes, Bytes block_bytes) {
  return bytes / block_bytes + (bytes % block_bytes != 0 ? 1 : 0);
}

std::string to_text(const Manifest& manifest) {
  check(manifest);
  const std::string body = body_of(manifest);
  return body + last_line(body);
}

Manifest parse_manifest(const std::string& text, const std::string& path) {
  try {
    const auto body = checked_body(text);
    const auto version = number(Lines(body).take(kFirstLine));
    if (version > Manifest::kVersion) throw NewerFormat(path, version, Manifest::kVersion);
    Manifest manifest = take_manifest(Lines(body));
    if (to_text(manifest) != text) fail("is not in canonical form");
    return manifest;
  } catch (const NewerFormat&) {
    throw;
  } catch (const Error& error) {
    throw CorruptData(path, error.what());
  }
}

}  // namespace spillway
