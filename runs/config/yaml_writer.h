#pragma once

#include <array>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "runs/config/field_text.h"
#include "runs/config/yaml_node.h"
#include "spillway/train_config.h"

namespace spillway {

inline YamlNode scalar(std::string text) {
  return {.kind = YamlNode::Kind::scalar, .text = std::move(text)};
}

/// A visitor that makes a map of fields, in their order.
class YamlWriter {
 public:
  template <typename Value, typename Range>
  void field(const char* key, const Value& value, const Range& range, const char* /*sentence*/ = "",
             InContract /*in_contract*/ = InContract::no) {
    put(key, node_of(value, range));
  }
  template <typename Visit>
  void section(const char* key, const Visit& visit) {
    YamlWriter writer;
    visit(writer);
    put(key, std::move(writer.map_));
  }
  template <typename Item, typename Visit>
  void list(const char* key, const std::vector<Item>& items, const char* /*example*/,
            const char* /*sentence*/, const Visit& visit,
            InContract /*in_contract*/ = InContract::no,
            MayBeEmpty /*may_be_empty*/ = MayBeEmpty::no) {
    put(key, node_of_list(items, visit));
  }
  void require_key(const char* /*key*/, const char* /*remedy*/) {}
  bool applies(bool condition) const { return condition; }
  bool shows(bool condition) const { return condition; }

  void put(std::string key, YamlNode value) {
    value.key = std::move(key);
    map_.children.push_back(std::move(value));
  }
  YamlNode take() { return std::move(map_); }

  /// A list of maps.
  template <typename Item, typename Visit>
  static YamlNode node_of_list(const std::vector<Item>& items, const Visit& visit) {
    YamlNode list{.kind = YamlNode::Kind::list};
    for (const Item& item : items) {
      YamlWriter writer;
      visit(item, writer);
      list.children.push_back(std::move(writer.map_));
    }
    return list;
  }
  /// The value of a field.
  template <typename Value, typename Range>
  static YamlNode node_of(const Value& value, const Range& range) {
    return scalar(to_text(value, range));
  }
  template <typename Item, typename Range>
  static YamlNode node_of(const std::vector<Item>& values, const Range& range) {
    YamlNode list{.kind = YamlNode::Kind::list};
    for (const Item& value : values) list.children.push_back(node_of(value, range));
    return list;
  }
  static YamlNode node_of(const std::array<std::int64_t, 2>& values, const IntRange& range) {
    if (values[0] == values[1]) return node_of(values[0], range);
    return node_of(std::vector(values.begin(), values.end()), range);
  }
  static YamlNode node_of(const std::vector<std::string>& values, const TextList& range) {
    const bool is_one = !range.may_be_empty && values.size() == 1;
    return is_one ? scalar(values[0]) : node_of<std::string>(values, kAny);
  }
  static YamlNode node_of(const std::filesystem::path& path, AnyValue) {
    return scalar(path.string());
  }
  static YamlNode node_of(const AutoscaleRule& rule, AnyValue) {
    YamlWriter writer;
    writer.field("rule", rule.rule, kAny);
    for (const auto& [name, value] : rule.params) {
      writer.field(name.c_str(), value, NumberRange{});
    }
    return writer.take();
  }

 private:
  YamlNode map_{.kind = YamlNode::Kind::map};
};

}  // namespace spillway
