#include <algorithm>
#include <span>
#include <utility>

#include "core/spec/stored_tensor.h"
#include "spillway/ids.h"
#include "trainer/compute/training_job.h"
#include "trainer/compute/trial_state.h"
#include "trainer/storage/weights_file.h"

/// The weights of a job: where they begin and how they end.
namespace spillway {
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

std::vector<NamedTensor> TrainingJob::kept_weights() const {
  const MutexLock lock(mutex_);
  std::vector<NamedTensor> copies;
  for (const NamedTensor& kept : kept_weights_) copies.push_back({kept.name, kept.value.clone()});
  return copies;
}

/// Weights of other hosts can be read only once, so what is read again comes from the copies or the
/// file, if there are any.
void TrainingJob::hand_out_weights(RemoteState* remote) {
  handed_out_ = places_.weights(*home_, remote);
  hash_.clear();
  std::vector<NamedTensor> kept;
  const std::vector<StoredTensor> tensors = stored_tensors(model_->spec);
  for (std::size_t t = 0; config_.keep_weights && t < tensors.size(); ++t) {
    if (is_constant(model_->spec.params[at(tensors[t].params.front())])) continue;
    NamedArray& array = handed_out_[t];
    const at::Tensor& copy = kept.emplace_back(copy_of(array)).value;
    const auto* const bytes = static_cast<const std::byte*>(copy.const_data_ptr());
    array = array_of(array.name, array.shape, {bytes, copy.nbytes()}, array.dtype);
  }
  const bool has_file = !config_.weights_file.empty();
  if (has_file) write_safetensors(config_.weights_file, handed_out_);
  if (remote && !config_.keep_weights) {
    if (has_file) {
      handed_out_ = arrays_in(file_source(posix_file_system(), config_.weights_file));
    } else {
      hash_ = weights_xxh3(handed_out_);
    }
  }
  const MutexLock lock(mutex_);
  kept_weights_ = std::move(kept);
}

/// With divided masters, host 0 has handed them out, and the others do not have them.
void TrainingJob::finish() {
  if (!plan_->layout.divides_masters()) {
    hand_out_weights(nullptr);
  } else if (handed_out_.empty()) {
    return;
  }
  const std::string hash = hash_.empty() ? weights_xxh3(handed_out_) : hash_;
  handed_out_.clear();
  const MutexLock lock(mutex_);
  progress_.weights_xxh3 = hash;
}

}  // namespace spillway
