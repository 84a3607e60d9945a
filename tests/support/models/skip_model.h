#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "spillway/model.h"
#include "spillway/trial_config.h"

/// A small graph that is not a chain: edges that skip layers, with one, two and three readers.
namespace spillway::testing {

using Tensors = std::vector<at::Tensor>;

/// Inputs and parameters in, output out.
using SkipFunction = std::function<at::Tensor(const Tensors& x, const Tensors& w)>;

struct SkipPiece {
  std::string name;
  std::vector<std::string> reads;
  SkipFunction forward;
  int num_weights = 1;  ///< of [kSkipWidth, kSkipWidth]
};

constexpr std::int64_t kSkipWidth = 24, kSkipTokens = 61;

/// u1 is read by u2, u4 and the head; u2 by u3 and u5; `sign` has no gradient.
std::vector<SkipPiece> skip_pieces();

std::unique_ptr<Model> make_skip_model(std::int64_t vn_size);

TrialConfig skip_trial();

}  // namespace spillway::testing
