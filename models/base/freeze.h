#pragma once

#include <string>
#include <vector>

#include "spillway/spec.h"

namespace spillway {

/// Makes the parameters that match any of `patterns` not trainable. A pattern is a whole name, in
/// which `*` stands for any characters and `?` for one: "wte.*", "h.0.*". Running statistics go on
/// following what their layers observe, and match nothing.
/// Throws ConfigError (`model.freeze`) where a pattern matches no parameter, and where none is left
/// to train.
void freeze(ModelSpec& model, const std::vector<std::string>& patterns);

}  // namespace spillway
