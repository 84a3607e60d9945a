#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace spillway {

/// Sizes of a residual network; names follow Hugging Face. The data decides the shape of a picture;
/// the defaults fit the digits of spillway/data_source.h.
struct ResnetConfig {
  std::int64_t num_channels = 1;  ///< of a picture; its values come before its label
  std::int64_t image_size = 8;    ///< height and width of a picture
  double input_scale = 1.0 / 16;  ///< factor for the values of a picture
  std::int64_t num_labels = 10;   ///< classes
  std::vector<std::int64_t> hidden_sizes{16, 32, 64};  ///< channels of each stage
  std::vector<std::int64_t> depths{1, 1, 1};           ///< blocks of each stage
  double dropout = 0;                                  ///< probability
  double batch_norm_eps = 1e-5;                        ///< epsilon of batch normalization
  double batch_norm_momentum = 0.1;                    ///< of the running statistics
  std::vector<std::string> freeze;  ///< patterns of parameters to freeze, see models/base/freeze.h

  /// Throws ConfigError that names the field (`model.hidden_sizes`, ...), the value and the remedy.
  void validate() const;
  /// Height and width of the pictures in a stage: half of the previous stage, rounded up.
  std::int64_t size_in_stage(std::size_t stage) const;
  /// Number of layers of the model, the loss included.
  std::int64_t num_layers() const;
};

}  // namespace spillway
