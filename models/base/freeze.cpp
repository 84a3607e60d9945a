#include "models/base/freeze.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>

#include "core/base/config_check.h"

namespace spillway {

void freeze(ModelSpec& model, const std::vector<std::string>& patterns) {
  ConfigCheck check("model.");
  for (const std::string& pattern : patterns) {
    bool matches = false;
    for (ParamSpec& param : model.params) {
      if (param.is_statistic() || fnmatch(pattern.c_str(), param.tensor_name().c_str(), 0) != 0) continue;
      param.trainable = false;
      matches = true;
    }
    check.require(matches, "freeze",
                  fmt::format("'{}' matches no parameter; names are such as {}", pattern,
                              model.params.front().tensor_name()));
  }
  check.require(std::ranges::any_of(model.params, &ParamSpec::trainable), "freeze",
                "leaves no parameter to train");
  check.finish();
}

}  // namespace spillway
