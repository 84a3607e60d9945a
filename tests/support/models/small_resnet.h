#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>

#include "models/pictures/resnet.h"
#include "tests/support/disk/temporary_folder.h"
#include "tests/support/models/made_up_digits.h"
#include "tests/support/models/safetensors.h"
#include "tests/support/run/training_run.h"

/// Small residual networks for whole runs.
namespace spillway::testing {

inline ResnetConfig small_resnet(double dropout = 0.1) {
  ResnetConfig config;
  config.hidden_sizes = {8, 16};
  config.depths = {2, 1};
  config.dropout = dropout;
  return config;
}

/// Made-up digits, shifted if `augment`.
inline std::shared_ptr<const DataSplit> made_up_digits(bool augment = true) {
  DataSplit digits = split(std::make_shared<MadeUpDigits>(), 0.3);
  if (augment) digits.augment = shift_pictures(8, 8);
  return std::make_shared<const DataSplit>(std::move(digits));
}

/// Eight virtual nodes of `vn_size` samples in four groups.
inline TrialConfig resnet_trial(const ResnetConfig& model = small_resnet(),
                                std::int64_t vn_size = 4) {
  TrialConfig trial;
  trial.name = "resnet";
  trial.model = [model](std::int64_t size) { return make_resnet(model, size); };
  trial.data = made_up_digits();
  trial.train.seed = 5;
  trial.train.batch_size = 8 * vn_size;
  trial.train.virtual_nodes = 8;
  trial.train.reduction_groups = 4;
  trial.train.max_steps = 10;
  trial.train.learning_rate = 3e-3;
  trial.train.eval_steps = 5;
  trial.train.eval_batches = 1;
  return trial;
}

/// The weights keep their initial values, so the statistics depend only on the observations.
inline TrialConfig still_trial(int steps) {
  TrialConfig trial = resnet_trial(small_resnet(/*dropout=*/0));
  trial.data = made_up_digits(/*augment=*/false);
  trial.train.learning_rate = 0;
  trial.train.max_steps = steps;
  return trial;
}

using TensorMap = std::map<std::string, at::Tensor>;

struct Trained {
  RunResult run;
  TensorMap values;  ///< weights and statistics at the end
};

inline Trained train_to_file(const SessionConfig& config, TrialConfig trial) {
  const TemporaryFolder folder;
  trial.weights_file = folder / "w.safetensors";
  Trained trained{train(config, trial), {}};
  EXPECT_EQ(trained.run.trials[0].state, TrialState::done) << trained.run.trials[0].reason;
  trained.values = read_safetensors(folder.read("w.safetensors"));
  return trained;
}

inline bool is_statistic(const std::string& name) {
  return name.find("running_") != std::string::npos || name.ends_with("num_batches_tracked");
}

}  // namespace spillway::testing
