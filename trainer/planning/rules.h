#pragma once

#include <memory>
#include <vector>

#include "scheduler/elastic/heuristic.h"
#include "spillway/train_config.h"

namespace spillway {

/// The rules of a trial's autoscaler. Throws ConfigError (`train.autoscale`,
/// `train.autoscale[1].threshold`, ...).
std::vector<std::shared_ptr<const Heuristic>> make_rules(const TrainConfig& train);

}  // namespace spillway
