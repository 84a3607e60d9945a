#pragma once

#include <string>
#include <string_view>

#include "runs/config/yaml_node.h"

namespace spillway {

/// Paths identify places in a document: `train.learning_rate`, `devices[1].memory`. A key that
/// contains dots, as below `sweep.parameters`, is found by its whole name.

/// True if `path` is `section` or a place inside it.
bool lies_in(std::string_view path, std::string_view section);

/// Null if the path does not exist.
const YamlNode* find_at(const YamlNode& tree, std::string_view path);

/// Sets `value` at `path` and creates missing maps; items of lists must exist. Throws ConfigError
/// naming the path.
void set_at(YamlNode& tree, std::string_view path, YamlNode value);

/// Removes the key at `path`, if any.
void remove_at(YamlNode& tree, std::string_view path);

/// Applies an override `a.b=c` of the command line. `c` is plain text, or YAML if it starts with
/// one of [ { " '. Throws ConfigError.
void apply_override(YamlNode& tree, std::string_view text);

}  // namespace spillway
