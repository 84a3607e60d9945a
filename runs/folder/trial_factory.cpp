#include "runs/folder/trial_factory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <utility>

#include "core/base/config_check.h"
#include "runs/config/yaml_path.h"
#include "runs/folder/strategy_file.h"
#include "spillway/data_source.h"
#include "trainer/config/batch_split.h"
#include "trainer/config/config_fields.h"

namespace spillway {
namespace {

/// Virtual nodes that a configuration may have.
constexpr std::int64_t kMostNodes = 1 << 16;

/// Trials of a run can only use the devices that the file lists.
void check_lanes(const RunConfig& config) {
  const int lanes = config.train.data_parallel,
            devices = static_cast<int>(config.session.devices.size());
  if (lanes <= devices) return;
  throw ConfigError(
      "train.data_parallel", 0,
      fmt::format("is {}, but there {}; write a smaller number, or list more devices", lanes,
                  devices == 1 ? "is 1 device" : fmt::format("are {} devices", devices)));
}

void check_rows(const RunConfig& config) {
  const ExportedInfo& info = config.torch.info;
  if (config.data.format == DataFormat::tensors) return;
  if (info.row_dtype == DType::i64 && info.row_elements > 1) return;
  throw ConfigError("data.format", 0,
                    fmt::format("is {}, but the rows of '{}' are {} {} values; write tensors",
                                to_string(config.data.format), config.torch.path, info.row_elements,
                                info.row_dtype == DType::f32 ? "float32" : "int64"));
}

void check_pictures(const CnnConfig& cnn, DataFormat format) {
  const bool are_digits = format == DataFormat::digits;
  if (format == DataFormat::tensors || (are_digits && cnn.num_channels == 1 && cnn.image_size == 8))
    return;
  throw ConfigError(
      "data.format", 0,
      fmt::format("is {}, but the model reads pictures of {} x {} x {}; write tensors, or digits "
                  "with model.num_channels: 1 and model.image_size: 8",
                  to_string(format), cnn.num_channels, cnn.image_size, cnn.image_size));
}

/// What tensors in files are parts of.
ExportedInfo rows_of(const RunConfig& config) {
  if (config.family != ModelFamily::cnn) return config.torch.info;
  const std::int64_t channels = config.cnn.num_channels, size = config.cnn.image_size;
  const std::int64_t numbers = channels * size * size;
  ExportedInfo rows{
      .row_dtype = DType::i64, .row_elements = numbers + 1, .inputs = {}, .metrics = {}};
  rows.inputs = {{.name = "images", .begin = 0, .shape = {channels, size, size}, .dtype = "int64"},
                 {.name = "labels", .begin = numbers, .shape = {}, .dtype = "int64"}};
  return rows;
}

void check_format(const RunConfig& config) {
  if (config.family == ModelFamily::torch) return check_rows(config);
  if (config.family == ModelFamily::cnn) return check_pictures(config.cnn, config.data.format);
  const bool of_pictures =
      config.family == ModelFamily::mlp || config.family == ModelFamily::resnet;
  const bool are_tensors = config.data.format == DataFormat::tensors;
  if (!are_tensors && (config.data.format == DataFormat::digits) == of_pictures) return;
  throw ConfigError("data.format", 0,
                    fmt::format("is {}, which model.family {} does not read; write {}",
                                to_string(config.data.format), to_string(config.family),
                                of_pictures ? "digits" : "bytes or tokens"));
}

std::string section_of(const ConfigError& error) {
  return error.field.substr(0, error.field.find('.'));
}

/// Below which tokens must be. What a model in a file takes is checked with its samples.
std::int64_t num_tokens(const RunConfig& config) {
  return config.family == ModelFamily::torch ? std::numeric_limits<std::int64_t>::max()
                                             : config.vocab_size();
}

std::shared_ptr<const DataSplit> open(const RunConfig& config,
                                      const std::vector<std::string>& names) {
  const DataConfig& data = config.data;
  const auto length = config.sequence_length();
  std::vector<std::string> paths;
  for (const auto& name : names) paths.push_back(config.data_root / name);
  if (data.format == DataFormat::tensors) {
    if (paths.size() != 1) throw ConfigError("data.path", 0, "names several files; name one");
    return exported_data(paths[0], rows_of(config), data.eval_fraction);
  }
  if (data.format == DataFormat::digits) {
    return digits_data(paths, data.eval_fraction, data.augment);
  }
  if (data.format == DataFormat::tokens) {
    return tokens_data(paths, data.dtype, num_tokens(config), length, data.eval_fraction);
  }
  return bytes_data(paths, length, data.eval_fraction);
}

/// The samples for evaluation that have files of their own.
std::shared_ptr<const DataSource> open_eval(const RunConfig& config) {
  std::shared_ptr<const DataSplit> opened;
  ConfigCheck check;
  check.run([&] { opened = open(config, config.data.eval_paths); });
  std::vector<ConfigError> errors;
  for (const ConfigError& error : check.found()) {
    const bool is_path = error.field == "data.path";
    errors.emplace_back(is_path ? "data.eval_path" : error.field, error.line, error.problem);
  }
  if (!errors.empty()) throw ConfigErrors(errors);
  return opened->train;
}

std::shared_ptr<const DataSplit> open(const RunConfig& config) {
  auto opened = open(config, config.data.paths);
  if (config.data.eval_paths.empty()) return opened;
  DataSplit both = *opened;
  both.eval = open_eval(config);
  return std::make_shared<DataSplit>(std::move(both));
}

}  // namespace

void divide_batch(TrainConfig& train, const ExportedInfo& info) {
  const std::int64_t nodes = train.batch_size / info.batch_size;
  if (train.virtual_nodes == 0 && train.batch_size % info.batch_size == 0 && nodes <= kMostNodes)
    train.virtual_nodes = static_cast<int>(nodes);
}

void check_virtual_nodes(const TrainConfig& train, const std::string& path,
                         const ExportedInfo& info) {
  const std::int64_t batch = train.batch_size, nodes = virtual_nodes_of(train);
  if (batch == nodes * info.batch_size) return;
  const auto fail = [&](const char* field, const std::string& problem) {
    throw ConfigError(field, 0,
                      fmt::format("is {}; each virtual node of '{}' has a batch size of {}",
                                  problem, path, info.batch_size));
  };
  if (batch % info.batch_size != 0) {
    const std::int64_t next = (batch / info.batch_size + 1) * info.batch_size;
    fail("train.batch_size",
         fmt::format("{}, must be a multiple of {}, such as {}", batch, info.batch_size, next));
  }
  fail("train.virtual_nodes",
       fmt::format("{}, must be {}, or absent", nodes, batch / info.batch_size));
}

ModelFactory model_factory(const RunConfig& config) {
  if (config.family == ModelFamily::mlp) return mlp_factory(config.mlp);
  if (config.family == ModelFamily::resnet) return resnet_factory(config.resnet);
  if (config.family == ModelFamily::cnn) return cnn_factory(config.cnn);
  if (config.family == ModelFamily::rnn) return rnn_factory(config.rnn);
  return gpt_factory(config.gpt);
}

std::uint64_t num_training_samples(const TrialConfig& trial) {
  return trial.data->train->num_samples();
}

void note(const ConfigError& error, const YamlNode& tree, Findings& findings) {
  const auto key = key_of_field(error.field);
  const auto* node = find_at(tree, key);
  // A list with one rule may be written as the rule itself.
  if (node == nullptr && lies_in(key, "train.autoscale")) node = find_at(tree, "train.autoscale");
  findings.add(key, node != nullptr ? node->line : 0, error.problem);
}

void run_noting(const YamlNode& tree, Findings& findings, const std::function<void()>& step) {
  ConfigCheck check;
  check.run(step);
  for (const ConfigError& error : check.found()) note(error, tree, findings);
}

TrialConfig TrialFactory::make(const Trial& trial, Findings& findings) {
  const RunConfig& config = trial.config;
  TrialConfig made{.name = trial.name, .train = config.train, .contract = contract_fields(config)};
  // Fields that could not be read have default values, so errors about them mean nothing.
  std::set<std::string> unread;
  for (const char* key : {"adapter", "data", "devices", "model", "model.family", "model.path",
                          "model.vocab_size", "model.max_position_embeddings", "train"}) {
    if (findings.concern(key)) unread.insert(key);
  }
  ConfigCheck check;
  check.run([&] {
    if (config.family == ModelFamily::torch && !config.torch.info.name.empty())
      check_virtual_nodes(config.train, config.torch.path, config.torch.info);
    made.model = model(config);
  });
  check.run([&] {
    if (!config.strategy.empty())
      read_strategies(config.data_root / config.strategy, trial.name, made.train);
  });
  check.run([&] { made.validate(); });
  if (!unread.contains("devices")) check.run([&] { check_lanes(config); });
  if (!unread.contains("model.family") && !unread.contains("model.path") &&
      !unread.contains("model.vocab_size") && !unread.contains("model.max_position_embeddings"))
    check.run([&] { made.data = trial.data ? trial.data : data(config); });
  for (const ConfigError& error : check.found()) {
    if (!unread.contains(section_of(error))) note(error, trial.tree, findings);
  }
  return made;
}

ModelFactory TrialFactory::model(const RunConfig& config) {
  if (config.family != ModelFamily::torch) return model_factory(config);
  if (config.torch.info.name.empty()) return nullptr;  // a finding
  const auto lora = config.adapter ? std::optional(config.adapter->lora) : std::nullopt;
  const TorchPieces& pieces = config.torch.pieces;
  if (lora && pieces != TorchPieces{}) {
    throw ConfigError("model.pieces", 0,
                      "cannot be combined with adapter; remove one of the two sections");
  }
  auto& known = model_files_[{config.torch.path, pieces, lora}];
  if (known) return known;
  try {
    const std::filesystem::path file = config.data_root / config.torch.path;
    return known = lora ? adapted_factory(file, *lora) : exported_factory(file, pieces);
  } catch (const ConfigError&) {
    throw;
  } catch (const Error& error) {
    throw ConfigError("model.path", 0, error.what());
  }
}

std::optional<std::int64_t> TrialFactory::steps_of_epochs(Trial& trial) {
  constexpr double kRounding = 1 - 1e-12;  // 0.1 epochs of 30 samples are 3 samples
  const RunConfig& config = trial.config;
  ConfigCheck check;
  if (!check.run([&] { trial.data = data(config); })) return std::nullopt;
  const auto samples = static_cast<double>(trial.data->train->num_samples());
  const auto batch_size = static_cast<double>(config.train.batch_size);
  const double steps = std::ceil(config.num_train_epochs * samples * kRounding / batch_size);
  return static_cast<std::int64_t>(std::clamp(steps, 1.0, static_cast<double>(kSteps.max)));
}

std::shared_ptr<const DataSplit> TrialFactory::data(const RunConfig& config) {
  check_format(config);
  std::string kind = config.torch.info.xxh3;
  if (config.family == ModelFamily::cnn)
    kind = fmt::format("{} x {}", config.cnn.num_channels, config.cnn.image_size);
  auto& known = opened_[{config.data, config.sequence_length(), num_tokens(config), kind}];
  if (!known) known = open(config);
  return known;
}

}  // namespace spillway
