#pragma once

#include <string>
#include <string_view>

#include "runs/config/yaml_node.h"

namespace spillway {

/// Paths name places in a document: `train.learning_rate`, `devices[1].memory`. A key that itself
/// has dots, as below `sweep.parameters`, is found by its whole name.

/// Whether `path` is `section` or names a place inside it.
bool lies_in(std::string_view path, std::string_view section);

/// Null where nothing stands.
const YamlNode* find_at(const YamlNode& tree, std::string_view path);

/// Puts `value` at `path`, making the maps on the way; items of lists must exist.
/// Throws ConfigError naming the path.
void set_at(YamlNode& tree, std::string_view path, YamlNode value);

/// Removes the key at `path`, where there is one.
void remove_at(YamlNode& tree, std::string_view path);

/// Applies an override `a.b=c` of the command line. `c` is plain text, or YAML if it begins with
/// one of [ { " '. Throws ConfigError.
void apply_override(YamlNode& tree, std::string_view text);

}  // namespace spillway
