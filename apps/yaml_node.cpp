#include "apps/yaml_node.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <sstream>
#include <system_error>

#include "core/error.h"

namespace spillway {
namespace {

// Aliases may refer to what they stand in, or multiply without end.
constexpr int kMaxDepth = 32;
constexpr int kMaxNodes = 100'000;

class Converter {
 public:
  YamlNode convert(const YAML::Node& source, int line, int depth);

 private:
  void convert_map(const YAML::Node& source, YamlNode& node, int depth);
  int num_nodes_ = 0;
};

int line_of(const YAML::Node& node, int otherwise) {
  return node.Mark().line < 0 ? otherwise : node.Mark().line + 1;
}

YamlNode Converter::convert(const YAML::Node& source, int line, int depth) {
  if (depth > kMaxDepth || ++num_nodes_ > kMaxNodes)
    throw ConfigError("", line, "nested too deep or too large; are there aliases in a circle?");
  YamlNode node{.line = line};
  if (source.IsScalar()) {
    node.kind = YamlNode::Kind::scalar;
    node.text = source.Scalar();
  } else if (source.IsSequence()) {
    node.kind = YamlNode::Kind::list;
    for (const auto& item : source)
      node.children.push_back(convert(item, line_of(item, line), depth + 1));
  } else if (source.IsMap()) {
    node.kind = YamlNode::Kind::map;
    convert_map(source, node, depth);
  }
  return node;
}

void Converter::convert_map(const YAML::Node& source, YamlNode& node, int depth) {
  for (const auto& entry : source) {
    const int line = line_of(entry.first, node.line);
    if (!entry.first.IsScalar()) throw ConfigError("", line, "a key must be plain text");
    const std::string& key = entry.first.Scalar();
    if (node.find(key) != nullptr) throw ConfigError(key, line, "stands here a second time");
    node.children.push_back(convert(entry.second, line, depth + 1));
    node.children.back().key = key;
  }
}

/// Where a document begins; the rest goes by.
struct DocumentStart final : YAML::EventHandler {
  YAML::Mark mark;
  void OnDocumentStart(const YAML::Mark& at) override { mark = at; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}
};

/// Whether there is any document. Throws where there are two. Not YAML::LoadAll: before a comma it
/// finds documents without end.
bool has_document(const std::string& text) {
  std::istringstream in(text);
  YAML::Parser parser(in);
  DocumentStart first, second;
  if (!parser.HandleNextDocument(first)) return false;
  if (!parser.HandleNextDocument(second)) return true;
  if (second.mark.pos == first.mark.pos)
    throw ConfigError("", first.mark.line + 1, "no valid YAML: a document cannot begin with this");
  throw ConfigError("", 0, "has more than one YAML document");
}

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
  try {
    if (!has_document(text)) return {};
    const auto document = YAML::Load(text);
    return Converter().convert(document, line_of(document, 1), 0);
  } catch (const YAML::Exception& e) {
    throw ConfigError("", e.mark.line + 1, "no valid YAML: " + e.msg);
  }
}

YamlNode read_yaml_file(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) throw IoError("cannot read", path, EISDIR);
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) throw IoError("cannot read", path, errno != 0 ? errno : EIO);
  return parse_yaml({std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()});
}

std::string to_yaml(const YamlNode& node) {
  YAML::Emitter out;
  emit(out, node);
  return out.c_str() + std::string("\n");
}

}  // namespace spillway
