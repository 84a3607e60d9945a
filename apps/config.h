#pragma once

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "apps/findings.h"
#include "apps/sweep_config.h"
#include "apps/yaml_node.h"
#include "trainer/builtin.h"
#include "trainer/session.h"

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
  std::string output_dir;      ///< "runs/NAME" unless given
  SessionConfig session;       ///< devices, host_memory, home_path, scheduling but for its order
  std::string family = "gpt";  ///< gpt | mlp | resnet: which of the next three counts
  GptConfig gpt;
  MlpConfig mlp;
  ResnetConfig resnet;
  DataConfig data;
  TrainConfig train;  ///< train.*, seed, scheduling.order
  SweepConfig sweep;

  /// Layers of the model: the most shards that it can be cut into.
  std::int64_t num_layers() const {
    if (family == "resnet") return resnet.num_layers();
    return family == "mlp" ? mlp.num_hidden_layers + 1 : 2 * gpt.num_hidden_layers + 2;
  }
};

/// Reads a document. What is wrong goes into `findings`, and that field keeps its default.
RunConfig read_config(const YamlNode& tree, Findings& findings);

/// Every key that stands for a value: "train.learning_rate"; lists are one key.
std::vector<std::string> config_keys();

/// The configuration as YAML that reads back as the same values, with every key.
std::string to_yaml(const RunConfig& config);

/// The key of the file for a field as TrainConfig::validate() and others name it.
std::string key_of_field(const std::string& field);

}  // namespace spillway
