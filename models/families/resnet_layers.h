#pragma once

#include <memory>

#include "spillway/model.h"
#include "spillway/resnet_config.h"

/// The layers of a residual network, all of them in fp32.
///
/// Shapes: B samples, C channels, S height and width. `rows` is [B, C * S * S + 1] i64: a picture,
/// channel by channel and row by row, and its label.
namespace spillway {

/// The place of a layer's convolution in its block.
struct ConvNorm {
  bool is_first = false;    ///< reads `rows`
  std::int64_t kernel = 3;  ///< height and width; padded so that stride 1 keeps the size
  std::int64_t stride = 1;
  bool has_residual = false;  ///< a second input, added before the ReLU
  bool has_relu = true;
  double dropout = 0;  ///< at the end
};

/// [B, C, S, S] (and the second input) -> [B, C', S', S']. Parameters: weight [C', C, K, K], then
/// those of add_batch_norm().
std::unique_ptr<Layer> make_conv_norm(const ConvNorm& options, const ResnetConfig& config);

/// [B, C, S, S], rows -> sum of the cross entropies of linear(average pooling); weight: B.
/// Parameters: [L, C], [L].
std::unique_ptr<Layer> make_resnet_head();

}  // namespace spillway
