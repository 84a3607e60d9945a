#include "runs/control/clone_trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "spillway/error.h"

namespace spillway {

Trial clone_of(Trial source, const std::vector<std::string>& values) {
  for (const std::string& text : values) {
    const std::size_t end = text.find('=');
    const std::string key = text.substr(0, end), value = text.substr(end + 1);
    if (!is_among(kSetKeys, key)) continue;
    const auto known =
        std::ranges::find(source.parameters, key, &std::pair<std::string, std::string>::first);
    if (known != source.parameters.end()) {
      known->second = value;
    } else {
      source.parameters.emplace_back(key, value);
    }
  }
  if (source.config.checkpoint.keep > 0) return source;
  throw ConfigError("checkpoint.keep", 0,
                    "is 0, so no checkpoint is kept where a clone could begin");
}

Trial longer(Trial trial, const TrialValues& values) {
  TrainConfig& train = trial.config.train;
  const std::int64_t before = train.max_steps;
  train.max_steps = values.max_steps.value_or(before);
  if (train.max_steps < before) {
    throw ConfigError("train.max_steps", 0,
                      fmt::format("is {}, but '{}' has {}, on which its learning rates depend; "
                                  "write at least {}",
                                  train.max_steps, trial.name, before, before));
  }
  if (train.max_steps > before) train.extended_from.push_back(before);
  if (values.extension) train.lr_scheduler_extend = *values.extension;
  return trial;
}

}  // namespace spillway
