#include "runs/config/yaml_reader.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "core/base/nearest.h"
#include "runs/text/format.h"

namespace spillway {
namespace {

using Kind = YamlNode::Kind;

template <typename T>
std::optional<T> parse(const std::string& text) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end) return std::nullopt;
  return value;
}

std::string quoted(const YamlNode& node) {
  switch (node.kind) {
    case Kind::null:
      return "no value";
    case Kind::scalar:
      return "'" + node.text + "'";
    case Kind::list:
      return node.children.empty() ? "an empty list" : "a list";
    case Kind::map:
      return "a group of keys";
  }
  return "";
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

std::string describe(IntRange range) {
  const IntRange all;
  std::string text = "write a whole number";
  if (range.min != all.min && range.max != all.max)
    return text + " from " + std::to_string(range.min) + " to " + std::to_string(range.max);
  if (range.min != all.min) text += " of at least " + std::to_string(range.min);
  return text;
}

std::string describe(NumberRange range) {
  const NumberRange all;
  std::string text = "write a number";
  if (range.min != all.min) text += " of at least " + format_number(range.min);
  if (range.max != all.max)
    text += (range.below_max ? ", below " : ", at most ") + format_number(range.max);
  return text;
}

bool contains(NumberRange range, double value) {
  return value >= range.min && (range.below_max ? value < range.max : value <= range.max);
}

}  // namespace

bool is_whole(const std::string& text) {
  const std::size_t digits = text.starts_with('-') ? 1 : 0;
  return text.size() > digits && text.find_first_not_of("0123456789", digits) == std::string::npos;
}

void YamlSchema::report_unknown() {
  for (const auto& [path, line] : unknown_) {
    if (findings_->has_unknown_key(path)) continue;  // of an earlier trial
    if (findings_->num_unknown_keys() == kMaxUnknownKeys) {
      findings_->add("", line, "there are more unknown keys from here on");
      break;
    }
    const auto near = nearest(path, known_);
    findings_->add_unknown_key(
        path, line,
        near.empty() ? "unknown key; remove it" : "unknown key; did you mean " + near + "?");
  }
  unknown_.clear();
}

YamlReader::YamlReader(YamlSchema& schema, const YamlNode* node, std::string path)
    : schema_(&schema),
      node_(node),
      line_(node == nullptr ? 0 : node->line),
      path_(std::move(path)) {
  if (node_ == nullptr || node_->kind == Kind::map || node_->kind == Kind::null) return;
  schema_->findings().add(path_, node_->line,
                          quoted(*node_) + " stands where a group of keys belongs");
  node_ = nullptr;
}

std::string YamlReader::path_of(const std::string& key) const {
  return path_.empty() ? key : path_ + "." + key;
}

void YamlReader::complain(const std::string& key, const YamlNode& node,
                          const std::string& problem) {
  schema_->findings().add(path_of(key), node.line, quoted(node) + " " + problem);
}

const YamlNode* YamlReader::raw(const char* key) {
  keys_.emplace_back(key);
  schema_->know(path_of(key));
  return node_ == nullptr ? nullptr : node_->find(key);
}

const YamlNode* YamlReader::scalar(const char* key, const char* remedy) {
  const auto* node = raw(key);
  if (node == nullptr || (node->kind == Kind::scalar && !node->text.empty())) return node;
  if (node->kind == Kind::scalar) {
    schema_->findings().add(path_of(key), node->line, std::string("is empty; ") + remedy);
  } else {
    complain(key, *node, std::string("stands where one value belongs; ") + remedy);
  }
  return nullptr;
}

void YamlReader::read(const char* key, std::int64_t& value, IntRange range) {
  const auto* node = scalar(key, describe(range).c_str());
  if (node != nullptr) value = integer(key, *node, range).value_or(value);
}

std::optional<std::int64_t> YamlReader::integer(const std::string& key, const YamlNode& node,
                                                IntRange range, const std::string& otherwise) {
  const auto number = parse<std::int64_t>(node.text);
  if (number && *number >= range.min && *number <= range.max) return number;
  complain(key, node,
           (is_whole(node.text) ? "is out of range; " : "is no whole number; ") + describe(range) +
               otherwise);
  return std::nullopt;
}

void YamlReader::read_integers(const char* key, std::vector<std::int64_t>& values, IntRange range) {
  const auto* node = raw(key);
  if (node == nullptr) return;
  if (node->kind != Kind::list || node->children.empty()) {
    complain(key, *node, "stands where a list of whole numbers belongs, such as [16, 32]");
    return;
  }
  std::vector<std::int64_t> numbers;
  for (std::size_t i = 0; i < node->children.size(); ++i) {
    const auto item = std::string(key) + "[" + std::to_string(i) + "]";
    if (const auto value = integer(item, node->children[i], range)) numbers.push_back(*value);
  }
  if (numbers.size() == node->children.size()) values = std::move(numbers);
}

void YamlReader::read(const char* key, int& value, IntRange range) {
  range.min = std::max<std::int64_t>(range.min, std::numeric_limits<int>::min());
  range.max = std::min<std::int64_t>(range.max, std::numeric_limits<int>::max());
  std::int64_t number = value;
  read(key, number, range);
  value = static_cast<int>(number);
}

void YamlReader::read(const char* key, int& value, IntRange range, const std::string& word,
                      int meaning) {
  const std::string otherwise = ", or " + word;
  const auto* node = scalar(key, (describe(range) + otherwise).c_str());
  if (node == nullptr) return;
  const bool is_word = node->text == word;
  const auto number = is_word ? meaning : integer(key, *node, range, otherwise);
  value = static_cast<int>(number.value_or(value));
}

void YamlReader::read(const char* key, std::uint64_t& value) {
  const char* remedy = "write a whole number from 0 to 18446744073709551615";
  const auto* node = scalar(key, remedy);
  if (node == nullptr) return;
  if (const auto number = parse<std::uint64_t>(node->text)) {
    value = *number;
  } else {
    complain(key, *node, std::string("is no such number; ") + remedy);
  }
}

void YamlReader::read(const char* key, double& value, NumberRange range) {
  const auto* node = scalar(key, describe(range).c_str());
  if (node != nullptr) value = number(key, *node, range).value_or(value);
}

std::optional<double> YamlReader::number(const std::string& key, const YamlNode& node,
                                         NumberRange range) {
  const auto value = parse<double>(node.text);
  if (!value || !std::isfinite(*value)) {
    complain(key, node, "is no number; " + describe(range));
  } else if (!contains(range, *value)) {
    complain(key, node, "is out of range; " + describe(range));
  } else {
    return value;
  }
  return std::nullopt;
}

void YamlReader::read_numbers(const char* key, std::vector<double>& values, NumberRange range) {
  const auto* node = raw(key);
  if (node == nullptr) return;
  if (node->kind != Kind::list) {
    complain(key, *node, "stands where a list of numbers belongs");
    return;
  }
  std::vector<double> numbers;
  for (std::size_t i = 0; i < node->children.size(); ++i) {
    const auto item = std::string(key) + "[" + std::to_string(i) + "]";
    if (const auto value = number(item, node->children[i], range)) numbers.push_back(*value);
  }
  if (numbers.size() == node->children.size()) values = std::move(numbers);
}

void YamlReader::read(const char* key, bool& value) {
  const auto* node = scalar(key, "write true or false");
  if (node == nullptr) return;
  if (node->text == "true" || node->text == "false") {
    value = node->text == "true";
  } else {
    complain(key, *node, "is neither true nor false");
  }
}

void YamlReader::read_text(const char* key, std::string& value) {
  if (const auto* node = scalar(key, "write some text")) value = node->text;
}

void YamlReader::read_path(const char* key, std::filesystem::path& value) {
  const auto* node = raw(key);
  if (node == nullptr) return;
  if (node->kind == Kind::scalar) {
    value = node->text;
  } else {
    complain(key, *node, "stands where one value belongs; write a folder");
  }
}

void YamlReader::read_choice(const char* key, std::string& value,
                             const std::vector<std::string>& choices) {
  const auto remedy = "write " + (choices.size() > 1 ? "one of " + joined(choices) : choices[0]);
  const auto* node = scalar(key, remedy.c_str());
  if (node == nullptr) return;
  if (std::find(choices.begin(), choices.end(), node->text) != choices.end()) {
    value = node->text;
  } else {
    complain(key, *node, "is not known; " + remedy);
  }
}

void YamlReader::read_size(const char* key, Bytes& value, Bytes min, Bytes max) {
  const char* remedy = "write a size such as 12MiB, 1.5GB or 4096";
  const auto* node = scalar(key, remedy);
  if (node == nullptr) return;
  const auto size = parse_bytes(node->text);
  if (size && *size >= min && *size <= max) {
    value = *size;
  } else if (size && *size > 0) {
    complain(key, *node,
             "is out of range; write " + format_bytes(min) + " to " + format_bytes(max));
  } else {
    complain(key, *node, std::string("is no size; ") + remedy);
  }
}

void YamlReader::read_rate(const char* key, Bytes& bytes_per_s, Bytes min) {
  const char* remedy = "write bytes per second such as 2GB/s or 500MiB/s, or 0 for none";
  const auto* node = scalar(key, remedy);
  if (node == nullptr) return;
  const auto rate = node->text == "0" ? std::optional<Bytes>(0) : parse_rate(node->text);
  if (rate && *rate != 0 && *rate < min) {
    complain(key, *node, "is out of range; write at least " + format_rate(min) + ", or 0 for none");
  } else if (rate) {
    bytes_per_s = *rate;
  } else {
    complain(key, *node, std::string("is no rate; ") + remedy);
  }
}

void YamlReader::read_texts(const char* key, std::vector<std::string>& values, bool may_be_empty) {
  const auto* node = raw(key);
  if (node == nullptr) return;
  const auto is_text = [](const YamlNode& n) { return n.kind == Kind::scalar && !n.text.empty(); };
  if (is_text(*node)) {
    values = {node->text};
  } else if (node->kind == Kind::list && (may_be_empty || !node->children.empty()) &&
             std::all_of(node->children.begin(), node->children.end(), is_text)) {
    values.clear();
    for (const auto& item : node->children) values.push_back(item.text);
  } else {
    schema_->findings().add(path_of(key), node->line, "write one text, or a list of texts");
  }
}

YamlReader YamlReader::section(const char* key) {
  const auto* node = raw(key);
  return YamlReader(*schema_, node, path_of(key));
}

std::vector<YamlReader> YamlReader::items(const char* key) {
  const auto* node = raw(key);
  std::vector<YamlReader> readers;
  if (node == nullptr) return readers;
  if (node->kind != Kind::list || node->children.empty()) {
    complain(key, *node, "stands where a list with at least one item belongs");
    return readers;
  }
  for (std::size_t i = 0; i < node->children.size(); ++i)
    readers.emplace_back(*schema_, &node->children[i],
                         path_of(key) + "[" + std::to_string(i) + "]");
  return readers;
}

void YamlReader::require(const char* key, const std::string& remedy) {
  if (node_ != nullptr && node_->find(key) != nullptr) return;
  schema_->findings().add(path_of(key), line_, "is missing; " + remedy);
}

void YamlReader::finish() {
  if (node_ == nullptr) return;
  for (const auto& child : node_->children) {
    if (std::find(keys_.begin(), keys_.end(), child.key) == keys_.end())
      schema_->suspect(path_of(child.key), child.line);
  }
}

}  // namespace spillway
