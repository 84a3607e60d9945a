#pragma once

#include <memory>
#include <vector>

#include "models/families/cnn_graph.h"
#include "spillway/model.h"

/// Layers of convolutional networks.
///
/// Shapes: B samples, C channels, H height, W width. `rows` is [B, C * H * W + 1] i64: a picture,
/// channel by channel and row by row, and its label.
namespace spillway {

/// What a layer reads of one of its inputs.
struct CnnPart {
  std::size_t input = 0;
  CnnPool pool = CnnPool::none;  ///< over each channel: [B, C, 1, 1]
  bool flat = false;             ///< as [B, C * H * W]
};

/// Pictures in rows.
struct CnnPictures {
  std::int64_t channels = 0, size = 0;  ///< height and width
  double scale = 1;                     ///< factor for their values
};

/// What a layer computes.
struct CnnOp {
  CnnLayerConfig layer;  ///< of another type than conv, linear and pooling: the identity
  bool has_norm = false;
  double norm_eps = 0;
  double dropout = 0;  ///< at the end
  /// Parts to concatenate, [B, C, H, W] or [B, C]. The first go through the layer, and the results
  /// of all are added, before the activation.
  std::vector<std::vector<CnnPart>> terms;
  CnnPictures pictures;  ///< of an input that is `rows`
  int labels = -1;       ///< the input with `rows` of the loss layer, -1 for others
};

/// -> [B, C', H', W'] or [B, C']; the loss layer -> sum of the cross entropies; weight: B.
/// Parameters: of a convolution, weight [C', C, K, L], then bias [C'] or those of add_batch_norm();
/// of a linear layer, weight [C', C], bias [C'].
std::unique_ptr<Layer> make_cnn_layer(CnnOp op);

}  // namespace spillway
