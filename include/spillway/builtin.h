#pragma once

#include <memory>
#include <string>
#include <vector>

#include "spillway/choices.h"
#include "spillway/cnn_config.h"
#include "spillway/data_source.h"
#include "spillway/gpt_config.h"
#include "spillway/mlp_config.h"
#include "spillway/model_factory.h"
#include "spillway/resnet_config.h"
#include "spillway/rnn_config.h"

/// The model families and data formats that a configuration can name.
namespace spillway {

/// Makes a GPT. Throws ConfigError like GptConfig::validate().
ModelFactory gpt_factory(const GptConfig& config);

/// Makes a multilayer perceptron. Throws ConfigError like MlpConfig::validate().
ModelFactory mlp_factory(const MlpConfig& config);

/// Makes a residual network. Throws ConfigError like ResnetConfig::validate().
ModelFactory resnet_factory(const ResnetConfig& config);

/// Makes a convolutional network. Throws ConfigError like CnnConfig::validate().
ModelFactory cnn_factory(const CnnConfig& config);

/// Makes a recurrent network. Throws ConfigError like RnnConfig::validate().
ModelFactory rnn_factory(const RnnConfig& config);

/// Like open_bytes(). Throws ConfigError (`data.path`, `data.eval_fraction`).
std::shared_ptr<const DataSplit> bytes_data(const std::vector<std::string>& paths,
                                            std::int64_t sequence_length, double eval_fraction);

/// Like open_tokens(). Throws ConfigError (`data.path`, `data.eval_fraction`).
std::shared_ptr<const DataSplit> tokens_data(const std::vector<std::string>& paths, TokenType dtype,
                                             std::int64_t vocab_size, std::int64_t sequence_length,
                                             double eval_fraction);

/// Like open_digits(), with random changes of the training pictures. Throws ConfigError
/// (`data.path`, `data.eval_fraction`).
std::shared_ptr<const DataSplit> digits_data(const std::vector<std::string>& paths,
                                             double eval_fraction,
                                             Augmentation augment = Augmentation::none);

}  // namespace spillway
