#include "apps/trial_factory.h"

#include "apps/yaml_path.h"

namespace spillway {
namespace {

ModelFactory model_factory(const RunConfig& config) {
  return config.family == "mlp" ? mlp_factory(config.mlp) : gpt_factory(config.gpt);
}

void check_format(const RunConfig& config) {
  const std::string format = config.family == "mlp" ? "digits" : "bytes";
  if (config.data.format == format) return;
  throw ConfigError("data.format", 0,
                    "is " + config.data.format + ", which model.family " + config.family +
                        " does not read; write " + format);
}

/// `length`: tokens of a sample, where it has any.
std::shared_ptr<const DataSplit> open(const DataConfig& data, std::int64_t length) {
  if (data.format == "digits") return digits_data(data.paths, data.eval_fraction);
  return bytes_data(data.paths, length, data.eval_fraction);
}

}  // namespace

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
  build("model", [&] { made.model = model_factory(trial.config); });
  build("data", [&] {
    if (!findings.concern("model.family")) check_format(trial.config);
    made.data = data(trial.config);
  });
  return made;
}

std::shared_ptr<const DataSplit> TrialFactory::data(const RunConfig& config) {
  const auto length = config.gpt.max_position_embeddings;
  auto& known = opened_[{config.data, length}];
  if (!known) known = open(config.data, length);
  return known;
}

}  // namespace spillway
