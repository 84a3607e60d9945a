#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>

#include "spillway/rnn_config.h"
#include "spillway/trial_config.h"

/// Small recurrent networks, and the same in plain LibTorch.
namespace spillway::testing {

/// Ten steps of each LSTM layer, in chunks of 4, 4 and 2.
RnnConfig small_rnn(RnnPreset preset, double dropout = 0.1, std::int64_t pieces = 1);

/// The sum of the cross entropies of `tokens` by a recurrent network without dropout, with the
/// parameters `value`.
at::Tensor plain_rnn_loss(const RnnConfig& config, const at::Tensor& tokens,
                          const std::function<at::Tensor(const std::string& name)>& value);

/// As tiny_trial(), but faster: an LSTM of this size learns slowly.
TrialConfig rnn_trial(const RnnConfig& model);

}  // namespace spillway::testing
