#include "trainer/builtin.h"

#include "models/data_source.h"
#include "models/gpt.h"
#include "models/mlp.h"

namespace spillway {

ModelFactory gpt_factory(const GptConfig& config) {
  config.validate();
  return [config](std::int64_t vn_size) { return make_gpt(config, vn_size); };
}

ModelFactory mlp_factory(const MlpConfig& config) {
  config.validate();
  return [config](std::int64_t vn_size) { return make_mlp(config, vn_size); };
}

std::shared_ptr<const DataSplit> bytes_data(const std::vector<std::string>& paths,
                                            std::int64_t sequence_length, double eval_fraction) {
  return std::make_shared<const DataSplit>(open_bytes(paths, sequence_length, eval_fraction));
}

std::shared_ptr<const DataSplit> tokens_data(const std::vector<std::string>& paths,
                                             const std::string& dtype, std::int64_t vocab_size,
                                             std::int64_t sequence_length, double eval_fraction) {
  return std::make_shared<const DataSplit>(
      open_tokens(paths, dtype, vocab_size, sequence_length, eval_fraction));
}

std::shared_ptr<const DataSplit> digits_data(const std::vector<std::string>& paths,
                                             double eval_fraction) {
  return std::make_shared<const DataSplit>(open_digits(paths, eval_fraction));
}

}  // namespace spillway
