#pragma once

#include <cstdint>

#include "spillway/spec.h"
#include "trainer/profile/machine.h"

namespace spillway {

/// From how many tokens a step on the rest of a spilled model's step takes no longer than its
/// matrix products, so that it can be hidden under them. Both grow with the weights alike, so their
/// number does not count. 0: the rates are not known.
struct Roofline {
  double copy_tokens = 0;    ///< weights down twice, sums of gradients up
  double update_tokens = 0;  ///< AdamW on the host
  double tokens() const;
  /// The least number of virtual nodes of `tokens_each` that hides both.
  std::int64_t virtual_nodes(std::int64_t tokens_each) const;
};

/// Of layers that compute with `dtype` on a device. Per token and weight a step takes 8 operations:
/// 2 forward, 2 to recompute it, 4 backward (Kaplan et al., "Scaling laws for neural language
/// models", 2020, without the recomputation). `update_bytes_per_s`: of fp32 weights.
Roofline roofline(const MachineDevice& device, DType dtype, double update_bytes_per_s);

}  // namespace spillway
