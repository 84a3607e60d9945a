#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace spillway {

/// A YAML document as plain values with their lines.
struct YamlNode {
  enum class Kind : std::uint8_t { null, scalar, list, map };
  Kind kind = Kind::null;
  int line = 0;                    ///< from 1; 0: not from a file
  std::string key;                 ///< in a map
  std::string text;                ///< of a scalar, without quotes
  std::vector<YamlNode> children;  ///< items of a list, or values of a map in file order

  /// The value at `name`; null if not a map or no such key.
  const YamlNode* find(std::string_view name) const;
};

/// Throws ConfigError, with the line, for invalid YAML or duplicate keys.
YamlNode parse_yaml(const std::string& text);
/// Throws IoError as well.
YamlNode read_yaml_file(const std::filesystem::path& path);

/// As YAML that round-trips; maps use a line per key, lists one line.
std::string to_yaml(const YamlNode& node);

}  // namespace spillway
