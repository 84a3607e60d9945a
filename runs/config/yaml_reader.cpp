#include "runs/config/yaml_reader.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>

#include "core/base/nearest.h"
#include "scheduler/elastic/heuristic.h"

namespace spillway {
namespace {

using Kind = YamlNode::Kind;

std::string text_of(const YamlNode& node) {
  switch (node.kind) {
    case Kind::null:
      return "has no value";
    case Kind::scalar:
      return node.text.empty() ? "is empty" : "is '" + node.text + "'";
    case Kind::list:
      return node.children.empty() ? "is an empty list" : "is a list";
    case Kind::map:
      return "is a mapping";
  }
  return "";
}

/// Renamed keys.
constexpr std::array<std::pair<const char*, const char*>, 6> kRenamed{{
    {"home_path", "offload_path"},
    {"train.lanes", "train.data_parallel"},
    {"train.max_lanes", "train.max_data_parallel"},
    {"devices[].link", "devices[].imitate.link"},
    {"devices[].slowdown", "devices[].imitate.slowdown"},
    {"devices[].fault", "devices[].imitate.fault"},
}};

/// The new name of such a key.
std::optional<std::string> new_name(const std::string& path) {
  const auto open = path.find('['), close = path.find(']');
  const std::string index = close == path.npos ? "" : path.substr(open + 1, close - open - 1);
  const auto with_index = [&](std::string key) {
    const auto brackets = key.find("[]");
    return brackets == key.npos ? key : key.insert(brackets + 1, index);
  };
  for (const auto& [old, now] : kRenamed) {
    if (with_index(old) == path) return with_index(now);
  }
  return std::nullopt;
}

}  // namespace

void YamlSchema::report_unknown() {
  for (const auto& [path, line] : unknown_) {
    if (findings_->has_unknown_key(path)) continue;  // already reported for an earlier trial
    if (findings_->num_unknown_keys() == kMaxUnknownKeys) {
      findings_->add("", line, "there are more unknown keys from here on");
      break;
    }
    std::string problem = "unknown key; remove it";
    if (const auto now = new_name(path)) {
      problem = fmt::format("was renamed to {}", *now);
    } else if (const auto near = nearest(path, known_); !near.empty()) {
      problem = fmt::format("unknown key; did you mean {}?", near);
    }
    findings_->add_unknown_key(path, line, problem);
  }
  unknown_.clear();
}

YamlReader::YamlReader(YamlSchema& schema, const YamlNode* node, std::string path)
    : schema_(&schema),
      node_(node),
      line_(node == nullptr ? 0 : node->line),
      path_(std::move(path)) {
  if (node_ == nullptr || node_->kind == Kind::map || node_->kind == Kind::null) return;
  schema_->findings().add(path_, line_,
                          (path_.empty() ? "the configuration " : "") + text_of(*node_) +
                              ", must be a mapping of keys to values");
  node_ = nullptr;
}

std::string YamlReader::path_of(const std::string& key) const {
  return path_.empty() ? key : path_ + "." + key;
}

void YamlReader::complain(const std::string& key, const YamlNode& node,
                          const std::string& expected) {
  schema_->findings().add(path_of(key), node.line,
                          fmt::format("{}, must be {}", text_of(node), expected));
}

const YamlNode* YamlReader::raw(const char* key) {
  keys_.emplace_back(key);
  schema_->know(path_of(key));
  return node_ == nullptr ? nullptr : node_->find(key);
}

void YamlReader::read(const std::string& key, const YamlNode& node,
                      std::vector<std::string>& values, const TextList& range) {
  if (is_text(node)) {
    values = {node.text};
  } else if (node.kind == Kind::list && (range.may_be_empty || !node.children.empty()) &&
             std::ranges::all_of(node.children, is_text)) {
    values.clear();
    for (const auto& item : node.children) values.push_back(item.text);
  } else {
    complain(key, node, "a string or a list of strings");
  }
}

void YamlReader::read(const std::string& key, const YamlNode& node,
                      std::array<std::int64_t, 2>& values, const IntRange& range) {
  if (node.kind != Kind::list) {
    if (read(key, node, values[0], range)) values[1] = values[0];
    return;
  }
  if (node.children.size() != values.size())
    return complain(key, node, "an integer or a list of two, such as [1, 7]");
  for (std::size_t i = 0; i < values.size(); ++i)
    read(fmt::format("{}[{}]", key, i), node.children[i], values[i], range);
}

void YamlReader::read(const std::string& key, const YamlNode& node, std::filesystem::path& value,
                      AnyValue) {
  if (node.kind == Kind::scalar) {
    value = node.text;
  } else {
    complain(key, node, "a folder");
  }
}

void YamlReader::read(const std::string& key, const YamlNode& node,
                      std::vector<AutoscaleRule>& rules, AnyValue) {
  rules.clear();
  const auto read_rule = [&](const YamlNode& item, const std::string& path) {
    YamlReader reader(*schema_, &item, path);
    AutoscaleRule& rule = rules.emplace_back();
    if (item.kind != Kind::scalar) {
      reader.require_key("rule",
                         fmt::format("write one of {}", fmt::join(kNames<RuleKind>, ", ")).c_str());
    }
    const YamlNode* name = reader.raw("rule");
    const bool is_known = name != nullptr && reader.read("rule", *name, rule.rule, kAny);
    for (const YamlNode& child : item.children) {
      if (child.key == "rule") continue;
      reader.field(child.key.c_str(), rule.params[child.key], NumberRange{});
    }
    if (!is_known) rule.params.clear();  // no rule to check them by
  };
  if (node.kind != Kind::list) return read_rule(node, path_of(key));
  for (std::size_t i = 0; i < node.children.size(); ++i) {
    read_rule(node.children[i], fmt::format("{}[{}]", path_of(key), i));
  }
}

std::vector<YamlReader> YamlReader::items_of(const char* key, const char* example,
                                             MayBeEmpty may_be_empty) {
  const auto* node = raw(key);
  std::vector<YamlReader> readers;
  if (node == nullptr) return readers;
  const bool is_short = node->children.empty() && may_be_empty == MayBeEmpty::no;
  if (node->kind != Kind::list || is_short) {
    complain(
        key, *node,
        fmt::format("a list of {}, such as {}",
                    may_be_empty == MayBeEmpty::no ? "at least one mapping" : "mappings", example));
    return readers;
  }
  for (std::size_t i = 0; i < node->children.size(); ++i) {
    readers.emplace_back(*schema_, &node->children[i], fmt::format("{}[{}]", path_of(key), i));
  }
  return readers;
}

void YamlReader::require_key(const char* key, const char* remedy) {
  if (node_ != nullptr && node_->find(key) != nullptr) return;
  schema_->findings().add(path_of(key), line_, fmt::format("is missing; {}", remedy));
}

void YamlReader::finish() {
  if (node_ == nullptr) return;
  for (const auto& child : node_->children) {
    if (std::ranges::find(keys_, child.key) == keys_.end()) {
      schema_->suspect(path_of(child.key), child.line);
    }
  }
}

}  // namespace spillway
