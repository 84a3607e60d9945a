#include "models/base/freeze.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>

#include "core/base/config_check.h"
#include "spillway/ids.h"

namespace spillway {

/// Edges behind which nothing is trained send no gradient back.
static void stop_gradients(ModelSpec& model) {
  std::vector<bool> is_trained(model.edges.size());
  for (const LayerSpec& layer : model.layers) {
    const bool trains =
        std::ranges::any_of(layer.params, [&](int p) { return model.params[at(p)].trainable; }) ||
        std::ranges::any_of(layer.inputs, [&](int e) { return is_trained[at(e)]; });
    for (int e : layer.outputs) is_trained[at(e)] = is_trained[at(e)] || trains;
  }
  for (std::size_t e = 0; e < model.edges.size(); ++e) {
    model.edges[e].differentiable &= is_trained[e];
  }
}

void freeze(ModelSpec& model, const std::vector<std::string>& patterns) {
  ConfigCheck check("model.");
  for (const std::string& pattern : patterns) {
    bool matches = false;
    for (ParamSpec& param : model.params) {
      if (param.is_statistic() || fnmatch(pattern.c_str(), param.tensor_name().c_str(), 0) != 0)
        continue;
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
  if (!patterns.empty()) stop_gradients(model);
}

}  // namespace spillway
