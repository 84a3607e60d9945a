#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/pictures/cnn_graph.h"
#include "models/pictures/cnn_rows.h"
#include "spillway/model.h"

/// Layers of convolutional networks.
///
/// Shapes: B samples, C channels, H height, W width. `rows` is [B, C * H * W + 1] i64: a picture,
/// channel by channel and row by row, and its label.
namespace spillway {

/// What a layer reads of one of its inputs.
struct CnnStrip {
  std::size_t input = 0;
  RowRange rows = {};  ///< of its pictures; none: all of it
};

/// Pictures, or features, that a layer reads.
struct CnnPart {
  std::vector<CnnStrip> strips;  ///< from the top to the bottom
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
  CnnSize row_padding{0, 0};  ///< above and below, in place of that of `layer`
  int factors = -1;           ///< the input with those of normalised(); -1: there are none
  CnnPictures pictures;       ///< of an input that is `rows`
  int labels = -1;            ///< the input with `rows` of the loss layer, -1 for others
};

/// LayerSpec::kind of the layer: what its costs depend on beside shapes.
std::string kind_of(const std::string& family, const CnnOp& op);

/// -> [B, C', H', W'] or [B, C']; the loss layer -> sum of the cross entropies; weight: B.
/// Parameters: of a convolution, weight [C', C, K, L], then bias [C'], those of add_batch_norm(),
/// or none; of a linear layer, weight [C', C], bias [C'].
std::unique_ptr<Layer> make_cnn_layer(CnnOp op);

/// moments() of pictures [B, C, H, W] -> [2, C]. Zeros in an evaluation, which needs none.
std::unique_ptr<Layer> make_cnn_moments();
/// batch_norm_factors(): one input [2, C] for each of `shares` -> [2, C]. Parameters: those of
/// add_batch_norm().
std::unique_ptr<Layer> make_cnn_factors(std::vector<double> shares, std::int64_t count, double eps);

}  // namespace spillway
