#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/spec/stored_tensor.h"
#include "spillway/error.h"
#include "spillway/ids.h"
#include "trainer/checkpoint/checkpoint_store.h"
#include "trainer/compute/initialize.h"
#include "trainer/compute/trial_state.h"
#include "trainer/session/session_impl.h"

/// Weights of a trial as tensors.
namespace spillway {
namespace {

/// All tensors of the model, in its order. Checkpoints and kept weights lack constants, which are
/// as they began.
std::vector<NamedTensor> completed(std::vector<NamedTensor> tensors, const Model& model,
                                   std::uint64_t seed) {
  std::vector<NamedTensor> all;
  std::vector<std::byte*> constants(model.spec.params.size());
  for (const StoredTensor& stored : stored_tensors(model.spec)) {
    const auto found = std::ranges::find(tensors, stored.name, &NamedTensor::name);
    const auto param = at(stored.params.front());
    if (found != tensors.end()) {
      all.push_back(std::move(*found));
    } else if (is_constant(model.spec.params[param])) {
      all.push_back({stored.name, empty_tensor(stored.tensor.shape(), stored.tensor.dtype)});
      constants[param] = static_cast<std::byte*>(all.back().value.mutable_data_ptr());
    } else {
      throw Error("the saved weights lack parameter " + stored.name);
    }
  }
  initialize(model, seed, constants);
  return all;
}

/// Of a trial that has ended; nothing if it has left none.
std::optional<std::vector<NamedTensor>> weights_on_disk(const TrialConfig& trial,
                                                        bool has_final_weights) {
  FileSystem& files = posix_file_system();
  if (has_final_weights && !trial.weights_file.empty()) {
    return copy_of(arrays_in(file_source(files, trial.weights_file)));
  }
  const auto& folder = trial.checkpoint.folder;
  if (folder.empty() || !std::filesystem::exists(folder)) return std::nullopt;
  const auto newest = CheckpointStore(files, folder).open_newest().generation;
  if (!newest) return std::nullopt;
  return copy_of(arrays_in(newest->file(kWeightsFile)));
}

}  // namespace

std::vector<NamedTensor> Session::weights(JobId id) const {
  const Impl& impl = *impl_;
  TrialConfig config;
  std::shared_ptr<const Model> model;
  std::optional<std::vector<NamedTensor>> kept;
  bool has_final_weights = false;
  {
    const MutexLock lock(impl.mutex);
    const SessionTrial& trial = impl.known_trial(id);
    config = trial.config;
    model = trial.model;
    // At rest its state stays as it is at least until the next commit, which needs the lock.
    if (trial.rests()) return copy_of(trial.job->weights());
    if (!trial.ended()) {
      throw Error(fmt::format("trial {} still trains; pause it and wait for it, or for its end",
                              config.name));
    }
    if (trial.sharded.sender && trial.plan->layout.divides_masters()) {
      throw Error(fmt::format("host 0 has the weights of trial {}; each other host has a part",
                              config.name));
    }
    has_final_weights = !trial.result.weights_xxh3.empty();
    if (trial.job && has_final_weights && config.keep_weights) kept = trial.job->kept_weights();
  }
  if (kept) return completed(std::move(*kept), *model, config.train.seed);
  if (auto saved = weights_on_disk(config, has_final_weights)) {
    return completed(std::move(*saved), *model, config.train.seed);
  }
  throw Error(fmt::format(
      "the weights of trial {} were not kept; set keep_weights, weights_file or checkpoint.folder",
      config.name));
}

}  // namespace spillway
