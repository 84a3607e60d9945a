#pragma once

#include "spillway/train_config.h"

namespace spillway::testing {

/// Ten steps of four virtual nodes in two groups, evaluated twice; without schedule, weight decay
/// and clipping.
inline TrainConfig short_training(double learning_rate) {
  TrainConfig train;
  train.seed = 3;
  train.batch_size = 16;
  train.virtual_nodes = 4;
  train.reduction_groups = 2;
  train.max_steps = 10;
  train.learning_rate = learning_rate;
  train.lr_scheduler_type = LrSchedulerType::constant;
  train.weight_decay = 0;
  train.max_grad_norm = 0;
  train.eval_steps = 5;
  train.eval_batches = 2;
  return train;
}

}  // namespace spillway::testing
