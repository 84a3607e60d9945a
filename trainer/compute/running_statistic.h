#pragma once

#include <cstddef>
#include <cstdint>

#include "spillway/spec.h"

namespace spillway {

/// Moves a running statistic once, behind the commit of a step: an average by the mean over
/// `virtual_nodes` of the observations, whose sum is `sum`; a count to `steps`, the committed
/// steps. In double, each element rounded once.
void update_statistic(std::byte* value, const ParamSpec& spec, const float* sum, int virtual_nodes,
                      std::int64_t steps);

}  // namespace spillway
