#pragma once

#include <string>
#include <utility>
#include <vector>

#include "scheduler/search/draft.h"

namespace spillway {

/// Well-known strategies on `devices` devices, by name: the starts of a search.
///
/// One device. Data parallelism (as a strategy: like lanes). Pipelines, whose stages divide the
/// model so that the longest is as short as possible, on one device each or on several that divide
/// the batch. Tensor parallelism as in Megatron-LM (Shoeybi et al., 2019): pieces on all devices.
/// The expert rule of FlexFlow (Jia et al., 2019), after Krizhevsky's "one weird trick": layers
/// with many weights for their work are divided by pieces, the others by the batch.
std::vector<std::pair<std::string, Draft>> known_drafts(const std::vector<WholeLayer>& layers,
                                                        int devices, int groups);

}  // namespace spillway
