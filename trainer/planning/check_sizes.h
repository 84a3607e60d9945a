#pragma once

#include <string>
#include <vector>

#include "spillway/spec.h"

namespace spillway {

/// What is so large that trying it out would take hours or all memory of the machine is turned down
/// before: a layer beyond 1 GiB and every budget, without its activations, or more ops a step than
/// a plan can hold. Throws DoesNotFit, or ConfigError (`train.virtual_nodes`).
void check_sizes(const std::string& trial, const ModelSpec& model, int virtual_nodes,
                 const std::vector<Bytes>& device_budgets);

}  // namespace spillway
