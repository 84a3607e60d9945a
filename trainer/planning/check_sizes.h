#pragma once

#include <string>
#include <vector>

#include "spillway/spec.h"

namespace spillway {

/// Rejects sizes that would take hours or all memory to measure: a layer that, even without its
/// activations, exceeds 1 GiB and every budget, or more ops per step than a plan can hold. Throws
/// DoesNotFit, or ConfigError (`train.virtual_nodes`).
void check_sizes(const std::string& trial, const ModelSpec& model, int virtual_nodes,
                 const std::vector<Bytes>& device_budgets);

}  // namespace spillway
