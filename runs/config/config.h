#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runs/config/findings.h"
#include "runs/config/sweep_config.h"
#include "runs/config/yaml_node.h"
#include "runs/config/yaml_reader.h"
#include "spillway/adapter.h"
#include "spillway/builtin.h"
#include "spillway/exported.h"
#include "spillway/session_config.h"
#include "spillway/trial_config.h"

namespace spillway {

enum class ModelFamily : std::uint8_t { gpt, mlp, resnet, cnn, rnn, torch };
template <>
inline constexpr std::array kNames<ModelFamily>{"gpt", "mlp", "resnet", "cnn", "rnn", "torch"};

enum class DataFormat : std::uint8_t { bytes, tokens, digits, tensors };
template <>
inline constexpr std::array kNames<DataFormat>{"bytes", "tokens", "digits", "tensors"};

/// Who else gets the metrics of a run.
enum class Reporter : std::uint8_t { tensorboard };
template <>
inline constexpr std::array kNames<Reporter>{"tensorboard"};

enum class ResumeMode : std::uint8_t { never, automatic };
template <>
inline constexpr std::array kNames<ResumeMode>{"never", "auto"};

struct DataConfig {
  DataFormat format = DataFormat::bytes;
  TokenType dtype = TokenType::uint16;        ///< of tokens
  Augmentation augment = Augmentation::none;  ///< of digits
  std::vector<std::string> paths;
  double eval_fraction = 0.05;          ///< 0 with eval_paths
  std::vector<std::string> eval_paths;  ///< evaluation samples of their own; empty: none
  auto operator<=>(const DataConfig&) const = default;
};

/// A model in a file of PyTorch's.
struct TorchConfig {
  std::string path;
  TorchPieces pieces;
  ExportedInfo info;  ///< of the file; its name is empty until it is read
};

enum class AdapterType : std::uint8_t { lora };
template <>
inline constexpr std::array kNames<AdapterType>{"lora"};

/// What is trained instead of a model of the family torch.
struct AdapterConfig {
  AdapterType type = AdapterType::lora;
  LoraConfig lora;
};

/// A configuration file as values; what it leaves out has its default.
struct RunConfig {
  std::string name = "run";
  std::string output_dir;  ///< "runs/NAME" unless given
  ResumeMode resume = ResumeMode::never;
  std::vector<Reporter> report_to;
  std::filesystem::path data_root;  ///< of data.paths, torch.path; empty: the current folder
  /// devices, host_memory, offload_path, scheduling but for its order, sweep.early_terminate
  SessionConfig session;
  ModelFamily family = ModelFamily::gpt;  ///< which of the next six counts
  GptConfig gpt;
  MlpConfig mlp;
  ResnetConfig resnet;
  CnnConfig cnn;
  RnnConfig rnn;
  TorchConfig torch;
  std::optional<AdapterConfig> adapter;  ///< of a torch
  DataConfig data;
  TrainConfig train{.virtual_nodes = 0};        ///< train.*, seed, scheduling.order
  std::string strategy;                         ///< file with train.strategy; empty: none
  double num_train_epochs = 0;                  ///< gives train.max_steps; 0: it is given itself
  CheckpointConfig checkpoint{.every_s = 600};  ///< but for its folder; keep 0: none are written
  SweepConfig sweep;

  /// Layers of the model: the most shards that it can be cut into.
  std::int64_t num_layers() const {
    if (family == ModelFamily::torch) return torch.info.num_layers;
    if (family == ModelFamily::resnet) return resnet.num_layers();
    if (family == ModelFamily::cnn) return cnn.num_layers();
    if (family == ModelFamily::rnn) return rnn.num_layers();
    return family == ModelFamily::mlp ? mlp.num_hidden_layers + 1 : 2 * gpt.num_hidden_layers + 2;
  }
  /// Names of what evaluations give beside the loss.
  std::vector<std::string> metrics() const {
    if (family == ModelFamily::torch) return torch.info.metrics;
    const bool is_rnnlm = family == ModelFamily::rnn && rnn.preset != RnnPreset::rnntc;
    return {to_string(family == ModelFamily::gpt || is_rnnlm ? MetricKind::perplexity
                                                             : MetricKind::accuracy)};
  }
  /// Below which the tokens of a gpt or rnn are.
  std::int64_t vocab_size() const {
    return family == ModelFamily::rnn ? rnn.vocab_size : gpt.vocab_size;
  }
  /// One less than the tokens of a sample; 0 if it is no text.
  std::int64_t sequence_length() const {
    const bool is_text = data.format == DataFormat::bytes || data.format == DataFormat::tokens;
    if (family == ModelFamily::torch) return is_text ? torch.info.row_elements - 1 : 0;
    if (family == ModelFamily::rnn) return rnn.max_position_embeddings;
    return family == ModelFamily::gpt ? gpt.max_position_embeddings : 0;
  }
  /// Tokens that a sample predicts; 0 if it predicts none.
  std::int64_t tokens_per_sample() const {
    return family == ModelFamily::rnn ? rnn.num_predictions() : sequence_length();
  }
  /// What a step predicts: tokens, or one result per sample.
  std::int64_t tokens_per_step() const {
    return train.batch_size * std::max<std::int64_t>(1, tokens_per_sample());
  }
};

/// Reads a document. Problems go into `findings`; a field with a problem keeps its default.
RunConfig read_config(const YamlNode& tree, Findings& findings);
/// Leaves unknown keys in `schema`.
RunConfig read_config(const YamlNode& tree, YamlSchema& schema);

/// Removes the key for which `key` is another way to say the same: of train.max_steps and
/// train.num_train_epochs a document has one.
void remove_alternative(YamlNode& tree, std::string_view key);

/// Every key that stands for a value: "train.learning_rate"; lists are one key.
std::vector<std::string> config_keys();

/// The fields of `model` and `data` that are part of the contract, see TrialConfig::contract.
std::map<std::string, std::string> contract_fields(const RunConfig& config);

/// The configuration as YAML that reads back as the same values, with every key. Swept keys have
/// the value that the document has beside the sweep, if any.
std::string to_yaml(const RunConfig& config);

/// The tables of docs/configuration.md: before each a line with its name, such as "[train]".
std::string reference_tables();

/// The key of the file for a field that TrainConfig::validate() or another check names.
std::string key_of_field(const std::string& field);

}  // namespace spillway
