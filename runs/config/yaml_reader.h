#pragma once

#include <array>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "runs/config/field_text.h"
#include "runs/config/findings.h"
#include "runs/config/yaml_node.h"
#include "spillway/train_config.h"

namespace spillway {

/// Number of unknown keys that are named, each with the known key most like it.
inline constexpr std::size_t kMaxUnknownKeys = 100;

/// What the readers of one document share: the findings, and which keys there are.
class YamlSchema {
 public:
  explicit YamlSchema(Findings& findings) : findings_(&findings) {}
  Findings& findings() { return *findings_; }
  const std::vector<std::string>& known() const { return known_; }
  void know(std::string path) { known_.push_back(std::move(path)); }
  void suspect(std::string path, int line) { unknown_.emplace_back(std::move(path), line); }
  /// Once every reader has ended: reports the unknown keys, each with its new name or with the
  /// known key most like it.
  void report_unknown();

 private:
  Findings* findings_;
  std::vector<std::string> known_;
  std::vector<std::pair<std::string, int>> unknown_;
};

/// The visitor that reads the keys of one map. A field keeps its value where the key is absent and,
/// with a finding, where the value is wrong. Absent maps are read too, so that all keys are known.
class YamlReader {
 public:
  /// `node` outlives the reader; null: an absent map.
  YamlReader(YamlSchema& schema, const YamlNode* node, std::string path);

  template <typename Value, typename Range>
  void field(const char* key, Value& value, const Range& range, const char* /*sentence*/ = "",
             InContract /*in_contract*/ = InContract::no) {
    const YamlNode* node = raw(key);
    if (node != nullptr) read(key, *node, value, range);
  }
  template <typename Visit>
  void section(const char* key, const Visit& visit) {
    YamlReader reader(*schema_, raw(key), path_of(key));
    visit(reader);
    reader.finish();
  }
  /// A list of maps.
  template <typename Item, typename Visit>
  void list(const char* key, std::vector<Item>& items, const char* example,
            const char* /*sentence*/, const Visit& visit,
            InContract /*in_contract*/ = InContract::no, MayBeEmpty may_be_empty = MayBeEmpty::no) {
    for (YamlReader& reader : items_of(key, example, may_be_empty)) {
      visit(items.emplace_back(), reader);
      reader.finish();
    }
  }
  /// A finding with `remedy` if the key is absent.
  void require_key(const char* key, const char* remedy);
  /// Keys of other kinds of values are unknown.
  bool applies(bool condition) const { return condition; }
  bool shows(bool /*condition*/) const { return true; }

  /// The raw value; null where absent.
  const YamlNode* raw(const char* key);
  /// After the last read: keys that were not read are unknown.
  void finish();

 private:
  std::string path_of(const std::string& key) const;
  std::vector<YamlReader> items_of(const char* key, const char* example, MayBeEmpty may_be_empty);
  /// "is 'x', must be ..."
  void complain(const std::string& key, const YamlNode& node, const std::string& expected);

  template <typename Value, typename Range>
  bool read(const std::string& key, const YamlNode& node, Value& value, const Range& range) {
    if (is_text(node) && parse(node.text, value, range)) return true;
    complain(key, node, describe(value, range));
    return false;
  }
  /// A list of at least one value.
  template <typename Item, typename Range>
  void read(const std::string& key, const YamlNode& node, std::vector<Item>& values,
            const Range& range) {
    if (node.kind != YamlNode::Kind::list || node.children.empty()) {
      return complain(key, node, "a list, such as [1, 2]");
    }
    std::vector<Item> items(node.children.size());
    bool is_right = true;
    for (std::size_t i = 0; i < items.size(); ++i) {
      is_right &= read(fmt::format("{}[{}]", key, i), node.children[i], items[i], range);
    }
    if (is_right) values = std::move(items);
  }
  /// A list of choices, which may be empty; one choice stands for a list of one.
  template <Named Item>
  void read(const std::string& key, const YamlNode& node, std::vector<Item>& values, AnyValue) {
    const bool is_list = node.kind == YamlNode::Kind::list;
    std::vector<Item> items(is_list ? node.children.size() : 1);
    bool is_right = true;
    for (std::size_t i = 0; i < items.size(); ++i) {
      is_right &= is_list ? read(fmt::format("{}[{}]", key, i), node.children[i], items[i], kAny)
                          : read(key, node, items[i], kAny);
    }
    if (is_right) values = std::move(items);
  }
  /// A number for both, or a list of two.
  void read(const std::string& key, const YamlNode& node, std::array<std::int64_t, 2>& values,
            const IntRange& range);
  void read(const std::string& key, const YamlNode& node, std::vector<std::string>& values,
            const TextList& range);
  /// An empty text stands for no path.
  void read(const std::string& key, const YamlNode& node, std::filesystem::path& value, AnyValue);
  /// One rule, or a list of them.
  void read(const std::string& key, const YamlNode& node, std::vector<AutoscaleRule>& rules,
            AnyValue);
  static bool is_text(const YamlNode& node) {
    return node.kind == YamlNode::Kind::scalar && !node.text.empty();
  }

  YamlSchema* schema_;
  const YamlNode* node_;
  int line_;
  std::string path_;
  std::vector<std::string> keys_;
};

}  // namespace spillway
