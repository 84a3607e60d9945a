#pragma once

#include <cstdint>

#include "spillway/spec.h"
#include "trainer/profile/machine.h"

namespace spillway {

/// The smallest number of tokens per step for which the matrix products of a spilled model take as
/// long as its copies or updates, and so can hide them. Both sides are proportional to the number
/// of weights, which cancels out. 0: the rates are unknown.
struct Roofline {
  double copy_tokens = 0;    ///< weights to the device twice, gradient sums to the host
  double update_tokens = 0;  ///< AdamW on the host
  double tokens() const;
  /// The smallest number of virtual nodes of `tokens_each` tokens that hides both.
  std::int64_t virtual_nodes(std::int64_t tokens_each) const;
};

/// For layers that compute with `dtype` on a device. A step takes 8 operations per token and
/// weight: 2 forward, 2 to recompute it, 4 backward (Kaplan et al., "Scaling laws for neural
/// language models", 2020, without the recomputation). `update_bytes_per_s`: of fp32 weights.
Roofline roofline(const MachineDevice& device, DType dtype, double update_bytes_per_s);

}  // namespace spillway
