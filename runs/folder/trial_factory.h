#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "runs/config/findings.h"
#include "runs/config/sweep.h"
#include "spillway/adapter.h"
#include "spillway/exported.h"
#include "spillway/trial_config.h"

namespace spillway {

/// Makes the model that the configuration describes. Throws ConfigError.
ModelFactory model_factory(const RunConfig& config);

/// Sets `train.virtual_nodes`, if it is open, to what a model in a file needs.
void divide_batch(TrainConfig& train, const ExportedInfo& info);

/// Throws ConfigError unless a virtual node has as many samples as the model in file `path`.
void check_virtual_nodes(const TrainConfig& train, const std::string& path,
                         const ExportedInfo& info);

/// Turns trials of a configuration into trials of a session. Trials that read the same data share
/// it.
class TrialFactory {
 public:
  /// Adds problems to `findings`; the result is valid only if there are none.
  TrialConfig make(const Trial& trial, Findings& findings);
  /// The steps that its epochs take; nothing if the data cannot be opened. The trial keeps it.
  std::optional<std::int64_t> steps_of_epochs(Trial& trial);

 private:
  ModelFactory model(const RunConfig& config);
  std::shared_ptr<const DataSplit> data(const RunConfig& config);

  /// By data, tokens of a sample, number of tokens, and file of the model or size of pictures.
  std::map<std::tuple<DataConfig, std::int64_t, std::int64_t, std::string>,
           std::shared_ptr<const DataSplit>>
      opened_;
  std::map<std::tuple<std::string, TorchPieces, std::optional<LoraConfig>>, ModelFactory>
      model_files_;
};

/// Samples of the trial's training data: those of an epoch.
std::uint64_t num_training_samples(const TrialConfig& trial);

/// Adds a library's error to `findings`, with the line of its field in the trial's document.
void note(const ConfigError& error, const YamlNode& tree, Findings& findings);

/// Runs `step` and notes the ConfigErrors that it throws.
void run_noting(const YamlNode& tree, Findings& findings, const std::function<void()>& step);

}  // namespace spillway
