#pragma once

#include <cstddef>
#include <cstdint>

#include "spillway/spec.h"

namespace spillway {

/// Updates `size` elements of a running statistic after the commit of a step. An average moves
/// towards the mean of the observations of all `virtual_nodes`, of which `sum` has the sums of
/// these elements; a count becomes `steps`, the number of committed steps. Computes in double and
/// rounds each element once.
void update_statistic(std::byte* values, const ParamSpec& spec, const float* sum, std::int64_t size,
                      int virtual_nodes, std::int64_t steps);

}  // namespace spillway
