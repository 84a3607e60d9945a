#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "spillway/sequential.h"
#include "spillway/trial_config.h"

/// Models that a user might write, and trials of them on made-up data.
namespace spillway::testing {

/// Pictures [1, 8, 8] -> 10 logits.
torch::nn::Sequential conv_net();
/// Like conv_net(), with batch norms and without biases before them: their gradients would be
/// noise.
torch::nn::Sequential norm_net();
/// 6 ids below 40 -> 10 logits.
torch::nn::Sequential embedding_net();
/// 12 numbers -> 3 numbers.
torch::nn::Sequential regression_net();

struct SmallNet {
  std::string name;
  torch::nn::Sequential (*make)();
  SequentialConfig config;
};

std::vector<SmallNet> small_nets();

inline void PrintTo(const SmallNet& net, std::ostream* out) { *out << net.name; }

/// A function of the sample's number.
at::Tensor made_up(std::int64_t samples, const SequentialConfig& config);

TrialConfig net_trial(const SmallNet& net);

}  // namespace spillway::testing
