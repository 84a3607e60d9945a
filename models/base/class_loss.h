#pragma once

#include "spillway/loss.h"
#include "spillway/model.h"

namespace spillway {

/// The result of a loss layer that compares `logits` [B, C] with `classes` [B]: the cross entropy
/// and, outside of training, the sums of accuracy() and the logits as prediction.
LayerResult class_loss(const at::Tensor& logits, const at::Tensor& classes,
                       const LayerContext& context);

}  // namespace spillway
