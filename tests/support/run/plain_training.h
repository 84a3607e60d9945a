#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "spillway/trial_config.h"

namespace spillway::testing {

/// The trainable parameters as a run begins, by name. They require gradients.
std::map<std::string, at::Tensor> initial_values(const TrialConfig& trial);

/// Parameters with a factor of the trial's learning rate.
struct PlainGroup {
  std::vector<at::Tensor> params;
  double scale = 1;
  double decay = 0;
};

/// Vectors do not decay.
std::vector<PlainGroup> plain_groups(const TrainConfig& train,
                                     const std::vector<at::Tensor>& params);

/// The losses of a training with nothing but LibTorch, micro-batch by micro-batch: one for each
/// virtual node. `loss_of` gives the mean loss of some rows; `factor` of the learning rate belongs
/// to a step.
std::vector<double> plain_training(
    const TrialConfig& trial, const std::vector<PlainGroup>& groups,
    const std::function<at::Tensor(const at::Tensor& rows)>& loss_of,
    const std::function<double(std::int64_t step)>& factor = [](std::int64_t) { return 1.0; });

std::vector<double> plain_training(
    const TrialConfig& trial, const std::vector<at::Tensor>& params,
    const std::function<at::Tensor(const at::Tensor& rows)>& loss_of);

}  // namespace spillway::testing
