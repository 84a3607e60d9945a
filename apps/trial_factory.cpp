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

std::shared_ptr<const DataSplit> open(const DataConfig& data, const GptConfig& gpt) {
  const auto length = gpt.max_position_embeddings;
  if (data.format == "digits") {
    return digits_data(data.paths, data.eval_fraction, data.augment);
  }
  if (data.format == "tokens") {
    return tokens_data(data.paths, data.dtype, gpt.vocab_size, length, data.eval_fraction);
  }
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
    if (findings.concern("model.vocab_size")) return;
    if (!findings.concern("model.family")) check_format(trial.config);
    made.data = data(trial.config);
  });
  return made;
}

std::shared_ptr<const DataSplit> TrialFactory::data(const RunConfig& config) {
  const GptConfig& gpt = config.gpt;
  auto& known = opened_[{config.data, gpt.max_position_embeddings, gpt.vocab_size}];
  if (!known) known = open(config.data, gpt);
  return known;
}

}  // namespace spillway
