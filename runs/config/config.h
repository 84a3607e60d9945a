#pragma once

#include <array>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runs/config/findings.h"
#include "runs/config/sweep_config.h"
#include "runs/config/yaml_node.h"
#include "runs/config/yaml_reader.h"
#include "spillway/builtin.h"
#include "spillway/session_config.h"
#include "spillway/trial_config.h"

namespace spillway {

/// By DeviceFault::Kind.
inline constexpr std::array kFaultNames{"none", "fail", "hang", "shrink"};

struct DataConfig {
  std::string format = "bytes";  ///< bytes | tokens (gpt), digits (mlp, resnet)
  std::string dtype = "uint16";  ///< of tokens: uint16 | uint32
  std::string augment = "none";  ///< of digits: none | shift
  std::vector<std::string> paths;
  double eval_fraction = 0.05;
  auto operator<=>(const DataConfig&) const = default;
};

/// A configuration file as values; what it leaves out has its default.
struct RunConfig {
  std::string name = "run";
  std::string output_dir;           ///< "runs/NAME" unless given
  std::string resume = "never";     ///< auto: train goes on with a run that output_dir holds
  std::filesystem::path data_root;  ///< of data.paths; empty: the current folder
  /// devices, host_memory, home_path, scheduling but for its order, sweep.early_terminate
  SessionConfig session;
  std::string family = "gpt";  ///< gpt | mlp | resnet: which of the next three counts
  GptConfig gpt;
  MlpConfig mlp;
  ResnetConfig resnet;
  DataConfig data;
  TrainConfig train;                            ///< train.*, seed, scheduling.order
  CheckpointConfig checkpoint{.every_s = 600};  ///< but for its folder; keep 0: none are written
  SweepConfig sweep;

  /// Layers of the model: the most shards that it can be cut into.
  std::int64_t num_layers() const {
    if (family == "resnet") return resnet.num_layers();
    return family == "mlp" ? mlp.num_hidden_layers + 1 : 2 * gpt.num_hidden_layers + 2;
  }
};

/// Reads a document. What is wrong goes into `findings`, and that field keeps its default.
RunConfig read_config(const YamlNode& tree, Findings& findings);
/// But for unknown keys, which it leaves in `schema`.
RunConfig read_config(const YamlNode& tree, YamlSchema& schema);

/// Every key that stands for a value: "train.learning_rate"; lists are one key.
std::vector<std::string> config_keys();

/// What the bits depend on beside shapes, samples and `train`, by key: see TrialConfig::contract.
std::map<std::string, std::string> contract_fields(const RunConfig& config);

/// The configuration as YAML that reads back as the same values, with every key. Keys that are
/// swept stand as the document has them beside the sweep, if it has them.
std::string to_yaml(const RunConfig& config);

/// The key of the file for a field as TrainConfig::validate() and others name it.
std::string key_of_field(const std::string& field);

}  // namespace spillway
