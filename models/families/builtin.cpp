#include "spillway/builtin.h"

#include <utility>

#include "models/families/gpt.h"
#include "models/families/mlp.h"
#include "models/pictures/cnn.h"
#include "models/pictures/resnet.h"
#include "models/text/rnn.h"
#include "spillway/data_source.h"

namespace spillway {
namespace {

constexpr std::int64_t kDigitSize = 8;  // height and width of a digit

}  // namespace

ModelFactory gpt_factory(const GptConfig& config) {
  config.validate();
  return [config](std::int64_t vn_size) { return make_gpt(config, vn_size); };
}

ModelFactory mlp_factory(const MlpConfig& config) {
  config.validate();
  return [config](std::int64_t vn_size) { return make_mlp(config, vn_size); };
}

ModelFactory resnet_factory(const ResnetConfig& config) {
  config.validate();
  return [config](std::int64_t vn_size) { return make_resnet(config, vn_size); };
}

ModelFactory cnn_factory(const CnnConfig& config) {
  config.validate();
  return [config](std::int64_t vn_size) { return make_cnn(config, vn_size); };
}

ModelFactory rnn_factory(const RnnConfig& config) {
  config.validate();
  return [config](std::int64_t vn_size) { return make_rnn(config, vn_size); };
}

std::shared_ptr<const DataSplit> bytes_data(const std::vector<std::string>& paths,
                                            std::int64_t sequence_length, double eval_fraction) {
  return std::make_shared<const DataSplit>(open_bytes(paths, sequence_length, eval_fraction));
}

std::shared_ptr<const DataSplit> tokens_data(const std::vector<std::string>& paths, TokenType dtype,
                                             std::int64_t vocab_size, std::int64_t sequence_length,
                                             double eval_fraction) {
  return std::make_shared<const DataSplit>(
      open_tokens(paths, dtype, vocab_size, sequence_length, eval_fraction));
}

std::shared_ptr<const DataSplit> digits_data(const std::vector<std::string>& paths,
                                             double eval_fraction, Augmentation augment) {
  DataSplit digits = open_digits(paths, eval_fraction);
  if (augment == Augmentation::shift) digits.augment = shift_pictures(kDigitSize, kDigitSize);
  return std::make_shared<const DataSplit>(std::move(digits));
}

}  // namespace spillway
