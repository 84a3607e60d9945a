#pragma once

#include <memory>
#include <string>
#include <vector>

#include "spillway/data_source.h"
#include "spillway/gpt_config.h"
#include "spillway/mlp_config.h"
#include "spillway/model_factory.h"
#include "spillway/resnet_config.h"

/// The model families and data formats that a configuration can name.
namespace spillway {

/// Throws ConfigError as GptConfig::validate().
ModelFactory gpt_factory(const GptConfig& config);

/// Throws ConfigError as MlpConfig::validate().
ModelFactory mlp_factory(const MlpConfig& config);

/// Throws ConfigError as ResnetConfig::validate().
ModelFactory resnet_factory(const ResnetConfig& config);

/// As spillway/data_source.h open_bytes(). Throws ConfigError (`data.path`, `data.eval_fraction`).
std::shared_ptr<const DataSplit> bytes_data(const std::vector<std::string>& paths,
                                            std::int64_t sequence_length, double eval_fraction);

/// As spillway/data_source.h open_tokens(). Throws ConfigError (`data.path`, `data.dtype`,
/// `data.eval_fraction`).
std::shared_ptr<const DataSplit> tokens_data(const std::vector<std::string>& paths,
                                             const std::string& dtype, std::int64_t vocab_size,
                                             std::int64_t sequence_length, double eval_fraction);

/// As spillway/data_source.h open_digits(); `augment`: "none", or "shift" for training on pictures
/// that shift_pictures() (spillway/augment.h) moves. Throws ConfigError (`data.path`,
/// `data.eval_fraction`, `data.augment`).
std::shared_ptr<const DataSplit> digits_data(const std::vector<std::string>& paths,
                                             double eval_fraction,
                                             const std::string& augment = "none");

}  // namespace spillway
