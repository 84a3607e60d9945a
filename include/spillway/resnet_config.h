#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace spillway {

/// Sizes of a residual network; names follow Hugging Face. What a picture looks like comes from the
/// data; as it is here it fits the digits of spillway/data_source.h.
struct ResnetConfig {
  std::int64_t num_channels = 1;  ///< of a picture, ahead of its label
  std::int64_t image_size = 8;    ///< its height and its width
  double input_scale = 1.0 / 16;  ///< what its numbers are multiplied by
  std::int64_t num_labels = 10;
  std::vector<std::int64_t> hidden_sizes{16, 32, 64};  ///< channels of each stage
  std::vector<std::int64_t> depths{1, 1, 1};           ///< blocks of each stage
  double dropout = 0;
  double batch_norm_eps = 1e-5;
  double batch_norm_momentum = 0.1;
  std::vector<std::string> freeze;  ///< patterns, as models/base/freeze.h: what is not trained

  /// Throws ConfigError naming the field (`model.hidden_sizes`, ...), the value and the remedy.
  void validate() const;
  /// Height and width of the pictures in a stage: half of those before it, rounded up.
  std::int64_t size_in_stage(std::size_t stage) const;
  std::int64_t num_layers() const;
};

}  // namespace spillway
