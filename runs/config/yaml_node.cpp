#include "runs/config/yaml_node.h"

#include <fmt/format.h>

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <system_error>
#include <utility>

#include "spillway/error.h"
#include "spillway/units.h"

namespace spillway {
namespace {

using Kind = YamlNode::Kind;

// Larger than any real configuration.
constexpr std::size_t kMaxBytes = 8 << 20;
constexpr std::ptrdiff_t kMaxNodes = 100'000;
constexpr std::size_t kMaxDepth = 32;

/// Checked before parsing: yaml-cpp may read a whole list before it emits the first item, and keeps
/// a hundred bytes per item.
void check_size(const std::string& text) {
  if (text.size() > kMaxBytes)
    throw ConfigError(
        "", 0, "the configuration is larger than " + format_bytes(kMaxBytes) + ", the limit");
  const auto is_separator = [](char c) { return c == ',' || c == '[' || c == '{'; };
  if (std::ranges::count_if(text, is_separator) > kMaxNodes)
    throw ConfigError("", 0,
                      fmt::format("the configuration has more than {} commas and opening brackets, "
                                  "the limit",
                                  kMaxNodes));
}

/// Builds a tree from yaml-cpp's events, and stops at the limits.
class TreeBuilder final : public YAML::EventHandler {
 public:
  /// Call after all events: a list that is never closed may have looked like a key.
  YamlNode take_root() {
    if (bad_key_) throw ConfigError(*bad_key_);
    return std::move(root_);
  }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (document_ && document_->pos == mark.pos)
      fail(mark, "not valid YAML: a document cannot begin with this");
    if (document_) throw ConfigError("", 0, "the file has more than one YAML document");
    document_ = mark;
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    add(mark, anchor, {.line = line_of(mark)});
  }
  void OnScalar(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                const std::string& text) override {
    if (text.find('\0') != std::string::npos) fail(mark, "has a NUL character; remove it");
    add(mark, anchor, {.kind = Kind::scalar, .line = line_of(mark), .text = text});
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto named = anchors_.find(anchor);
    if (named == anchors_.end()) fail(mark, "an alias refers to the value that contains it");
    YamlNode copy = named->second;
    copy.line = line_of(mark);
    add(mark, YAML::NullAnchor, std::move(copy));
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, anchor, Kind::list);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, anchor, Kind::map);
  }
  void OnMapEnd() override { close(); }

 private:
  /// An open list or map.
  struct Open {
    YamlNode node;
    YAML::anchor_t anchor;
    std::set<std::string> keys;
    YamlNode key = {};  ///< of the next value; its text is the key
    bool has_key = false;
  };

  static int line_of(const YAML::Mark& mark) { return mark.line + 1; }

  /// The line of the next value.
  std::string path() const {
    std::string path;
    for (const Open& open : open_) {
      if (open.node.kind == Kind::list) {
        path += fmt::format("[{}]", open.node.children.size());
      } else if (open.has_key) {
        path += (path.empty() ? "" : ".") + open.key.text;
      }
    }
    return path;
  }

  [[noreturn]] void fail(const YAML::Mark& mark, const std::string& problem) const {
    throw ConfigError(path(), line_of(mark), problem);
  }

  bool is_key_next() const {
    return !open_.empty() && open_.back().node.kind == Kind::map && !open_.back().has_key;
  }

  /// Counts `node`, at nesting depth `depth`, and its contents.
  void count(const YAML::Mark& mark, const YamlNode& node, std::size_t depth) {
    if (depth > kMaxDepth) fail(mark, fmt::format("is nested deeper than {} levels", kMaxDepth));
    if (++num_nodes_ > kMaxNodes)
      throw ConfigError(
          "", line_of(mark),
          fmt::format("the configuration has more than {} values, the limit", kMaxNodes));
    for (const YamlNode& child : node.children) count(mark, child, depth + 1);
  }

  void add(const YAML::Mark& mark, YAML::anchor_t anchor, YamlNode node) {
    if (!is_key_next()) count(mark, node, open_.size());
    complete(anchor, std::move(node));
  }

  void open(const YAML::Mark& mark, YAML::anchor_t anchor, Kind kind) {
    YamlNode node{.kind = kind, .line = line_of(mark)};
    count(mark, node, open_.size());
    open_.push_back({.node = std::move(node), .anchor = anchor, .keys = {}});
  }

  void close() {
    Open done = std::move(open_.back());
    open_.pop_back();
    complete(done.anchor, std::move(done.node));
  }

  void complete(YAML::anchor_t anchor, YamlNode node) {
    if (anchor != YAML::NullAnchor) anchors_[anchor] = node;
    if (open_.empty()) {
      root_ = std::move(node);
    } else if (is_key_next()) {
      take_key(std::move(node));
    } else {
      put(open_.back(), std::move(node));
    }
  }

  void take_key(YamlNode node) {
    const bool is_text = node.kind == Kind::scalar;
    if (!is_text && !bad_key_) bad_key_.emplace(path(), node.line, "a key must be plain text");
    Open& map = open_.back();
    map.key = std::move(node);
    map.has_key = true;
    if (is_text && !map.keys.insert(map.key.text).second)
      throw ConfigError(path(), map.key.line, "is given twice; remove one of them");
  }

  /// Values of a map have the line of their key.
  static void put(Open& parent, YamlNode node) {
    if (parent.node.kind == Kind::map) {
      node.key = std::move(parent.key.text);
      node.line = parent.key.line;
      parent.has_key = false;
    }
    parent.node.children.push_back(std::move(node));
  }

  std::optional<YAML::Mark> document_;
  std::optional<ConfigError> bad_key_;  // the first
  YamlNode root_;
  std::vector<Open> open_;
  std::map<YAML::anchor_t, YamlNode> anchors_;  // of complete values
  std::ptrdiff_t num_nodes_ = 0;
};

void emit(YAML::Emitter& out, const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::null:
      out << YAML::Null;
      break;
    case YamlNode::Kind::scalar:
      out << node.text;
      break;
    case YamlNode::Kind::list:
      out << YAML::Flow << YAML::BeginSeq;
      for (const auto& child : node.children) emit(out, child);
      out << YAML::EndSeq;
      break;
    case YamlNode::Kind::map:
      out << YAML::BeginMap;
      for (const auto& child : node.children) {
        out << YAML::Key << child.key << YAML::Value;
        emit(out, child);
      }
      out << YAML::EndMap;
      break;
  }
}

}  // namespace

const YamlNode* YamlNode::find(std::string_view name) const {
  if (kind != Kind::map) return nullptr;
  for (const auto& child : children) {
    if (child.key == name) return &child;
  }
  return nullptr;
}

YamlNode parse_yaml(const std::string& text) {
  check_size(text);
  try {
    // Not YAML::LoadAll: it finds endless documents before a comma.
    std::istringstream in(text);
    YAML::Parser parser(in);
    TreeBuilder builder;
    while (parser.HandleNextDocument(builder)) {
    }
    return builder.take_root();
  } catch (const YAML::Exception& e) {
    throw ConfigError("", e.mark.line + 1, "not valid YAML: " + e.msg);
  }
}

YamlNode read_yaml_file(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) throw IoError("cannot read", path, EISDIR);
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) throw IoError("cannot read", path, errno != 0 ? errno : EIO);
  std::string text(kMaxBytes + 1, '\0');  // one more than parse_yaml() accepts
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  return parse_yaml(text);
}

std::string to_yaml(const YamlNode& node) {
  YAML::Emitter out;
  emit(out, node);
  return out.c_str() + std::string("\n");
}

}  // namespace spillway
