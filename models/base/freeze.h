#pragma once

#include <string>
#include <vector>

#include "spillway/spec.h"

namespace spillway {

/// Makes the parameters that match any of `patterns` not trainable. A pattern is a whole name, in
/// which `*` stands for any characters and `?` for one: "wte.*", "h.0.*". Running statistics match
/// no pattern and are still updated. Layers before the first trained one get no gradients.
/// Throws ConfigError (`model.freeze`) if a pattern matches no parameter or if no parameter is left
/// to train.
void freeze(ModelSpec& model, const std::vector<std::string>& patterns);

}  // namespace spillway
