#include "apps/trial_factory.h"

#include "apps/yaml_path.h"

namespace spillway {
namespace {

ModelFactory model_factory(const RunConfig& config) {
  if (config.family == "mlp") return mlp_factory(config.mlp);
  if (config.family == "resnet") return resnet_factory(config.resnet);
  return gpt_factory(config.gpt);
}

void check_format(const RunConfig& config) {
  const bool of_pictures = config.family != "gpt";
  if ((config.data.format == "digits") == of_pictures) return;
  throw ConfigError("data.format", 0,
                    "is " + config.data.format + ", which model.family " + config.family +
                        " does not read; write " + (of_pictures ? "digits" : "bytes or tokens"));
}

std::shared_ptr<const DataSplit> open(const RunConfig& config) {
  const DataConfig& data = config.data;
  const auto length = config.gpt.max_position_embeddings;
  std::vector<std::string> paths;
  for (const auto& path : data.paths) paths.push_back(config.data_root / path);
  if (data.format == "digits") {
    return digits_data(paths, data.eval_fraction, data.augment);
  }
  if (data.format == "tokens") {
    return tokens_data(paths, data.dtype, config.gpt.vocab_size, length, data.eval_fraction);
  }
  return bytes_data(paths, length, data.eval_fraction);
}

}  // namespace

void note(const ConfigError& error, const YamlNode& tree, Findings& findings) {
  const auto key = key_of_field(error.field);
  const auto* node = find_at(tree, key);
  // A list of one rule is a rule.
  if (node == nullptr && lies_in(key, "train.autoscale")) node = find_at(tree, "train.autoscale");
  findings.add(key, node != nullptr ? node->line : 0, error.problem);
}

TrialConfig TrialFactory::make(const Trial& trial, Findings& findings) {
  TrialConfig made{
      .name = trial.name, .train = trial.config.train, .contract = contract_fields(trial.config)};
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
    if (findings.concern("model.vocab_size")) return;
    if (!findings.concern("model.family")) check_format(trial.config);
    made.data = data(trial.config);
  });
  return made;
}

std::shared_ptr<const DataSplit> TrialFactory::data(const RunConfig& config) {
  const GptConfig& gpt = config.gpt;
  auto& known = opened_[{config.data, gpt.max_position_embeddings, gpt.vocab_size}];
  if (!known) known = open(config);
  return known;
}

}  // namespace spillway
