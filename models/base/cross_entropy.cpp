#include "models/base/cross_entropy.h"

#include <ATen/core/Reduction.h>
#include <ATen/ops/_log_softmax_backward_data.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/nll_loss_backward.h>
#include <ATen/ops/nll_loss_forward.h>
#include <torch/csrc/autograd/custom_function.h>

namespace spillway {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// The kernels of at::cross_entropy_loss in their order.
class CrossEntropy : public torch::autograd::Function<CrossEntropy> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& logits,
                            const at::Tensor& classes, std::int64_t ignore_index) {
    const at::Tensor log_probabilities = at::log_softmax(logits, 1);
    auto [sum, weight] =
        at::nll_loss_forward(log_probabilities, classes, {}, at::Reduction::Sum, ignore_index);
    context->save_for_backward({log_probabilities, classes, weight});
    context->saved_data["ignore_index"] = ignore_index;
    return sum;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    at::Tensor gradient =
        at::nll_loss_backward(gradients[0], saved[0], saved[1], {}, at::Reduction::Sum,
                              context->saved_data["ignore_index"].toInt(), saved[2]);
    at::_log_softmax_backward_data_out(gradient, gradient, saved[0], 1, at::kFloat);
    return {gradient, {}, {}};
  }
};

}  // namespace

at::Tensor cross_entropy_of(const at::Tensor& logits, const at::Tensor& classes,
                            std::int64_t ignore_index, double label_smoothing) {
  if (logits.requires_grad() && logits.is_cpu() && label_smoothing == 0) {
    return CrossEntropy::apply(logits, classes, ignore_index);
  }
  return at::cross_entropy_loss(logits, classes, {}, at::Reduction::Sum, ignore_index,
                                label_smoothing);
}

}  // namespace spillway
