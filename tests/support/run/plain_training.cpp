#include "tests/support/run/plain_training.h"

#include <torch/torch.h>

#include <memory>
#include <utility>

#include "tests/support/models/training_rows.h"
#include "trainer/compute/initialize.h"

namespace spillway::testing {

std::map<std::string, torch::Tensor> initial_values(const TrialConfig& trial) {
  std::map<std::string, torch::Tensor> values;
  const ModelSpec spec = trial.model(2)->spec;
  for (std::size_t p = 0; p < spec.params.size(); ++p) {
    const ParamSpec& param = spec.params[p];
    if (!param.trainable) continue;
    torch::Tensor& value = values[param.name] = torch::empty(param.tensor.shape());
    initialize(value.mutable_data_ptr<float>(), param, trial.train.seed, p);
    value.requires_grad_();
  }
  return values;
}

std::vector<PlainGroup> plain_groups(const TrainConfig& train,
                                     const std::vector<torch::Tensor>& params) {
  std::vector<PlainGroup> groups{{.params = {}, .decay = train.weight_decay}, {}};
  for (const auto& param : params) groups[param.dim() >= 2 ? 0 : 1].params.push_back(param);
  return groups;
}

namespace {

/// The optimizer of the trial in LibTorch, at a constant rate.
std::unique_ptr<torch::optim::Optimizer> plain_optimizer(const TrainConfig& train,
                                                         const std::vector<PlainGroup>& plain) {
  const auto groups = [&](const auto& options_of) {
    using Options = decltype(options_of(PlainGroup()));
    std::vector<torch::optim::OptimizerParamGroup> made;
    for (const PlainGroup& group : plain) {
      made.emplace_back(group.params, std::make_unique<Options>(options_of(group)));
    }
    return made;
  };
  if (train.optimizer == OptimizerKind::sgd) {
    const auto options_of = [&](const PlainGroup& group) {
      return torch::optim::SGDOptions(train.learning_rate * group.scale)
          .momentum(train.momentum)
          .weight_decay(group.decay);
    };
    return std::make_unique<torch::optim::SGD>(groups(options_of), options_of({}));
  }
  return std::make_unique<torch::optim::AdamW>(groups([&](const PlainGroup& group) {
    return torch::optim::AdamWOptions(train.learning_rate * group.scale)
        .weight_decay(group.decay)
        .eps(1e-8);
  }));
}

}  // namespace

std::vector<double> plain_training(
    const TrialConfig& trial, const std::vector<PlainGroup>& groups,
    const std::function<torch::Tensor(const torch::Tensor& rows)>& loss_of,
    const std::function<double(std::int64_t step)>& factor) {
  const TrainConfig& train = trial.train;
  const std::int64_t size = train.batch_size / train.virtual_nodes;
  const auto optimizer = plain_optimizer(train, groups);
  std::vector<torch::Tensor> params;
  for (const PlainGroup& group : groups) {
    params.insert(params.end(), group.params.begin(), group.params.end());
  }
  std::vector<double> losses;
  for (std::int64_t step = 0; step < train.max_steps; ++step) {
    for (std::size_t g = 0; g < groups.size(); ++g) {
      optimizer->param_groups()[g].options().set_lr(train.learning_rate * groups[g].scale *
                                                    factor(step));
    }
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

std::vector<double> plain_training(
    const TrialConfig& trial, const std::vector<torch::Tensor>& params,
    const std::function<torch::Tensor(const torch::Tensor& rows)>& loss_of) {
  return plain_training(trial, plain_groups(trial.train, params), loss_of);
}

}  // namespace spillway::testing
