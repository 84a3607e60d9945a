#include "runs/config/yaml_path.h"

#include <charconv>
#include <optional>
#include <utility>

#include "spillway/error.h"

namespace spillway {
namespace {

using Kind = YamlNode::Kind;

/// True if a path component may end before `rest`.
bool ends_part(std::string_view rest) {
  return rest.empty() || rest.front() == '.' || rest.front() == '[';
}

/// Removes "[3]" from the front of a path.
std::optional<std::size_t> take_index(std::string_view& path) {
  std::size_t index = 0;
  const auto close = path.find(']');
  if (close == std::string_view::npos || !ends_part(path.substr(close + 1))) return std::nullopt;
  const char* end = path.data() + close;
  const auto [stop, error] = std::from_chars(path.data() + 1, end, index);
  if (error != std::errc{} || stop != end) return std::nullopt;
  path.remove_prefix(close + 1);
  return index;
}

/// Removes the first key from the front of a path: the longest that the map has, or else up to the
/// next dot or bracket. The rest begins with a dot or a bracket, or is empty.
std::string_view take_key(const YamlNode& map, std::string_view& path) {
  std::string_view key = path.substr(0, path.find_first_of(".["));
  for (const auto& child : map.children) {
    if (child.key.size() > key.size() && lies_in(path, child.key)) key = child.key;
  }
  const auto taken = path.substr(0, key.size());
  path.remove_prefix(key.size());
  return taken;
}

/// Steps from `node` to the child that `path` names first, and removes that part of the path. With
/// `make`, adds a missing key.
YamlNode* step_into(YamlNode& node, std::string_view& path, bool make) {
  if (path.starts_with('[')) {
    const auto index = take_index(path);
    if (!index || node.kind != Kind::list || *index >= node.children.size()) return nullptr;
    return &node.children[*index];
  }
  if (path.starts_with('.')) path.remove_prefix(1);
  if (make && node.kind == Kind::null) node.kind = Kind::map;
  if (node.kind != Kind::map) return nullptr;
  const auto key = take_key(node, path);
  for (auto& child : node.children) {
    if (child.key == key) return &child;
  }
  if (!make || key.empty()) return nullptr;
  node.children.push_back({.key = std::string(key)});
  return &node.children.back();
}

YamlNode value_of(std::string_view text) {
  if (!text.empty() && std::string_view("[{\"'").find(text.front()) != std::string_view::npos)
    return parse_yaml(std::string(text));
  return {.kind = Kind::scalar, .text = std::string(text)};
}

void forget_lines(YamlNode& node) {
  node.line = 0;
  for (auto& child : node.children) forget_lines(child);
}

}  // namespace

bool lies_in(std::string_view path, std::string_view section) {
  return path.starts_with(section) && ends_part(path.substr(section.size()));
}

const YamlNode* find_at(const YamlNode& tree, std::string_view path) {
  // Without `make` nothing changes.
  auto* node = path.starts_with('.') ? nullptr : const_cast<YamlNode*>(&tree);
  while (node != nullptr && !path.empty()) node = step_into(*node, path, false);
  return node;
}

void set_at(YamlNode& tree, std::string_view path, YamlNode value) {
  const std::string whole(path);
  YamlNode* node = path.empty() || path.starts_with('.') ? nullptr : &tree;
  while (node != nullptr && !path.empty()) node = step_into(*node, path, true);
  if (node == nullptr) throw ConfigError(whole, value.line, "is not a key of the configuration");
  value.key = node->key;
  *node = std::move(value);
}

void remove_at(YamlNode& tree, std::string_view path) {
  YamlNode* map = nullptr;
  YamlNode* node = path.empty() || path.starts_with('.') ? nullptr : &tree;
  while (node != nullptr && !path.empty()) {
    map = node;
    node = step_into(*node, path, false);
  }
  if (map == nullptr || node == nullptr || map->kind != Kind::map) return;
  map->children.erase(map->children.begin() + (node - map->children.data()));
}

void apply_override(YamlNode& tree, std::string_view text) {
  const auto equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0)
    throw ConfigError("", 0,
                      "'" + std::string(text) + "' is not an override; write it as key=value");
  const auto path = text.substr(0, equals);
  YamlNode value;
  try {
    value = value_of(text.substr(equals + 1));
  } catch (const ConfigError& e) {
    const bool inside = !e.field.empty() && !e.field.starts_with('[');
    throw ConfigError(std::string(path) + (inside ? "." : "") + e.field, 0, e.problem);
  }
  forget_lines(value);
  set_at(tree, path, std::move(value));
}

}  // namespace spillway
