#include "models/base/class_loss.h"

#include <array>

#include "models/base/compute_type.h"

namespace spillway {

LayerResult class_loss(const at::Tensor& logits, const at::Tensor& classes,
                       const LayerContext& context) {
  LayerResult result{.output = cross_entropy_sum(logits, classes),
                     .weight = static_cast<double>(classes.numel())};
  if (context.training) return result;
  result.metrics = accuracy().sums(std::array{logits, classes});
  result.prediction = logits;
  return result;
}

}  // namespace spillway
