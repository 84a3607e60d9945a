#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runs/config/config.h"

namespace spillway {

/// Overrides that divide each layer of the model that can be divided into as many pieces, or as
/// many as it can have: one list for each way. Empty if the family has no pieces.
std::vector<std::vector<std::string>> with_pieces(const RunConfig& config, std::int64_t pieces);

}  // namespace spillway
