#include "trainer/pilot_model.h"

#include "core/ids.h"
#include "core/kernels.h"

namespace spillway {

PilotModel::PilotModel(const Model& model)
    : spec_(model.spec),
      runner_(model, {0, static_cast<int>(spec_.layers.size())}, {},
              [this](int layer) { return params_[at(layer)]; }) {
  const auto memory_of = [this](const LayerSpec& layer) {
    std::vector<std::byte*> memory;
    for (int p : layer.params) memory.push_back(new_memory(spec_.params[at(p)].tensor));
    return memory;
  };
  for (const LayerSpec& layer : spec_.layers) {
    params_.push_back(memory_of(layer));
    for (auto& slot : slots_) slot.push_back(memory_of(layer));
  }
  for (std::size_t e = 0; e < spec_.edges.size(); ++e) {
    if (spec_.edges[e].producer < 0)
      batch_[static_cast<int>(e)] = new_memory(spec_.edges[e].tensor);
  }
}

Bytes PilotModel::bytes(const ModelSpec& spec) {
  Bytes bytes = 0;
  for (const LayerSpec& layer : spec.layers) {
    for (int p : layer.params) bytes += (1 + kSlots) * spec.params[at(p)].tensor.bytes();
  }
  return bytes;
}

/// Small normal numbers: costs do not depend on the values.
std::byte* PilotModel::new_memory(const TensorSpec& tensor) {
  auto& memory = storage_.emplace_back(tensor.bytes() / sizeof(std::int64_t) + 1);
  if (tensor.dtype == DType::f32) {
    kernels::fill_normal(reinterpret_cast<float*>(memory.data()),
                         static_cast<std::size_t>(tensor.elements()), 0.02, {});
  }
  return reinterpret_cast<std::byte*>(memory.data());
}

float* PilotModel::sum(std::size_t slot, int layer, std::size_t param) const {
  return reinterpret_cast<float*>(slots_[slot][at(layer)][param]);
}

void PilotModel::run() {
  const auto elements = [&](int layer, std::size_t param) {
    const ParamSpec& spec = spec_.params[at(spec_.layers[at(layer)].params[param])];
    return spec.has_sum() ? static_cast<std::size_t>(spec.tensor.elements()) : 0;
  };
  const auto fold = [&](int layer, int param, const float* term) {
    if (term) kernels::add(sum(slot_, layer, at(param)), term, elements(layer, at(param)));
  };
  runner_.backward(batch_, {}, {}, fold, &loss_);
  const std::size_t into = (slot_ + 1) % kSlots;
  for (int l = 0; l < static_cast<int>(params_.size()); ++l) {
    for (std::size_t p = 0; p < params_[at(l)].size(); ++p) {
      kernels::add(sum(into, l, p), sum(slot_, l, p), elements(l, p));
    }
  }
  slot_ = into;
}

}  // namespace spillway
