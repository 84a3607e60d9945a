#include "apps/trial_factory.h"

#include "apps/yaml_path.h"

namespace spillway {

void note(const ConfigError& error, const YamlNode& tree, Findings& findings) {
  const auto key = key_of_field(error.field);
  const auto* node = find_at(tree, key);
  findings.add(key, node != nullptr ? node->line : 0, error.problem);
}

TrialConfig TrialFactory::make(const Trial& trial, const std::filesystem::path& weights_file,
                               Findings& findings) {
  TrialConfig made{.name = trial.name, .train = trial.config.train, .weights_file = weights_file};
  // Sections that could not be read hold defaults, which say nothing.
  const auto build = [&](const char* section, const auto& step) {
    if (findings.concern(section)) return;
    try {
      step();
    } catch (const ConfigError& error) {
      note(error, trial.tree, findings);
    }
  };
  build("train", [&] { made.train.validate(); });
  build("model", [&] { made.model = gpt_factory(trial.config.model); });
  build("data", [&] { made.data = data(trial.config); });
  return made;
}

std::shared_ptr<const DataSplit> TrialFactory::data(const RunConfig& config) {
  const auto length = config.model.max_position_embeddings;
  auto& known = opened_[{config.data.paths, length, config.data.eval_fraction}];
  if (!known) known = bytes_data(config.data.paths, length, config.data.eval_fraction);
  return known;
}

}  // namespace spillway
