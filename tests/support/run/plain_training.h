#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <vector>

#include "tests/support/models/training_rows.h"

namespace spillway::testing {

/// The optimizer of the trial in LibTorch, at a constant rate. Vectors do not decay.
inline std::unique_ptr<torch::optim::Optimizer> plain_optimizer(
    const TrainConfig& train, const std::vector<torch::Tensor>& params) {
  std::vector<torch::Tensor> decayed, others;
  for (const auto& param : params) (param.dim() >= 2 ? decayed : others).push_back(param);
  const auto groups = [&](const auto& options_of) {
    using Options = decltype(options_of(0.0));
    return std::vector<torch::optim::OptimizerParamGroup>{
        {decayed, std::make_unique<Options>(options_of(train.weight_decay))},
        {others, std::make_unique<Options>(options_of(0.0))}};
  };
  if (train.optimizer == OptimizerKind::sgd) {
    const auto options_of = [&](double decay) {
      return torch::optim::SGDOptions(train.learning_rate)
          .momentum(train.momentum)
          .weight_decay(decay);
    };
    return std::make_unique<torch::optim::SGD>(groups(options_of), options_of(0));
  }
  return std::make_unique<torch::optim::AdamW>(groups([&](double decay) {
    return torch::optim::AdamWOptions(train.learning_rate).weight_decay(decay).eps(1e-8);
  }));
}

/// The losses of a training with nothing but LibTorch, micro-batch by micro-batch: one for each
/// virtual node. `loss_of` gives the mean loss of some rows.
inline std::vector<double> plain_training(
    const TrialConfig& trial, const std::vector<torch::Tensor>& params,
    const std::function<torch::Tensor(const torch::Tensor& rows)>& loss_of) {
  const TrainConfig& train = trial.train;
  const std::int64_t size = train.batch_size / train.virtual_nodes;
  const auto optimizer = plain_optimizer(train, params);
  std::vector<double> losses;
  for (std::int64_t step = 0; step < train.max_steps; ++step) {
    optimizer->zero_grad();
    double sum = 0;
    for (std::int64_t vn = 0; vn < train.virtual_nodes; ++vn) {
      const auto rows = rows_of(trial, step * train.batch_size + vn * size, size);
      const torch::Tensor loss = loss_of(rows) / train.virtual_nodes;
      loss.backward();
      sum += loss.item<double>();
    }
    if (train.max_grad_norm > 0) {
      torch::nn::utils::clip_grad_norm_(params, train.max_grad_norm);
    }
    optimizer->step();
    losses.push_back(sum);
  }
  return losses;
}

}  // namespace spillway::testing
