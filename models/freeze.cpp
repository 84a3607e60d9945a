#include "models/freeze.h"

#include <fnmatch.h>

#include <algorithm>

#include "core/error.h"

namespace spillway {

void freeze(ModelSpec& model, const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns) {
    bool matches = false;
    for (ParamSpec& param : model.params) {
      if (param.is_statistic() || fnmatch(pattern.c_str(), param.name.c_str(), 0) != 0) continue;
      param.trainable = false;
      matches = true;
    }
    if (!matches) {
      throw ConfigError(
          "model.freeze", 0,
          "'" + pattern + "' matches no parameter; names are such as " + model.params.front().name);
    }
  }
  if (std::ranges::none_of(model.params, &ParamSpec::trainable)) {
    throw ConfigError("model.freeze", 0, "leaves no parameter to train");
  }
}

}  // namespace spillway
