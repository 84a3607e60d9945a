#pragma once

#include "spillway/train_config.h"

/// How a batch is divided where a configuration leaves it open.
namespace spillway {

/// `train.virtual_nodes`; if that is 0, the largest divisor of `train.batch_size` up to 8.
int virtual_nodes_of(const TrainConfig& train);

/// `train.reduction_groups`; if that is 0, the largest divisor of virtual_nodes_of() up to 8.
int reduction_groups_of(const TrainConfig& train);

}  // namespace spillway
