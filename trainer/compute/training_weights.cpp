#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "core/spec/stored_tensor.h"
#include "spillway/ids.h"
#include "trainer/compute/training_job.h"
#include "trainer/compute/trial_state.h"
#include "trainer/storage/weights_file.h"

/// The weights of a job: where they begin and how they end.
namespace spillway {
namespace {

/// `all`: in the order of stored_tensors().
std::vector<NamedArray> without_constants(const ModelSpec& model,
                                          const std::vector<NamedArray>& all) {
  std::vector<NamedArray> others;
  const std::vector<StoredTensor> tensors = stored_tensors(model);
  for (std::size_t t = 0; t < all.size(); ++t) {
    if (!is_constant(model.params[at(tensors[t].params.front())])) others.push_back(all[t]);
  }
  return others;
}

}  // namespace

std::shared_ptr<std::byte> TrainingJob::map(const SharedBlock& block) const {
  if (!model_->map) return nullptr;
  std::vector<Model::Place> places;
  const Layout& layout = plan_->layout;
  for (int p = 0; p < static_cast<int>(layout.params.size()); ++p) {
    const Bytes home = layout.params[at(p)].home;
    if (home < block.home || home >= block.home + block.bytes) continue;
    if (layout.in_block(p) != home) return nullptr;  // it also has a copy in another type
    places.push_back({p, home - block.home});
  }
  std::ranges::sort(places, {}, &Model::Place::offset);
  return places.empty() ? nullptr : model_->map(places);
}

std::vector<NamedArray> TrainingJob::weights() const {
  std::vector<NamedArray> arrays;
  for (const StoredTensor& stored : stored_tensors(model_->spec)) {
    const Bytes size = size_of(stored.tensor.dtype);
    std::map<std::int64_t, std::span<const std::byte>> runs;  // by position in the tensor
    for (int p : stored.params) {
      for_each_run(model_->spec.params[at(p)], [&](const StoredRun& run) {
        runs[run.in_tensor] = {value(*home_, p) + static_cast<Bytes>(run.in_param) * size,
                               static_cast<Bytes>(run.length) * size};
      });
    }
    NamedArray array{.name = stored.name,
                     .shape = stored.tensor.shape(),
                     .data = {},
                     .dtype = stored.tensor.dtype};
    for (const auto& [position, bytes] : runs) array.data.push_back(bytes);
    arrays.push_back(std::move(array));
  }
  return arrays;
}

std::vector<NamedTensor> TrainingJob::kept_weights() const {
  const MutexLock lock(mutex_);
  std::vector<NamedTensor> copies;
  for (const NamedTensor& kept : kept_weights_) copies.push_back({kept.name, kept.value.clone()});
  return copies;
}

void TrainingJob::finish() {
  const std::vector<NamedArray> arrays = weights();
  const std::string hash = weights_xxh3(arrays);
  if (!config_.weights_file.empty()) write_safetensors(config_.weights_file, arrays);
  std::vector<NamedTensor> kept;
  if (config_.keep_weights) kept = copy_of(without_constants(model_->spec, arrays));
  const MutexLock lock(mutex_);
  progress_.weights_xxh3 = hash;
  kept_weights_ = std::move(kept);
}

}  // namespace spillway
