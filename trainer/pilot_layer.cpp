#include "trainer/pilot_layer.h"

#include <limits>

#include "core/ids.h"
#include "core/kernels.h"
#include "trainer/counting_allocator.h"

namespace spillway {

PilotLayer::PilotLayer(const Model& model, int layer)
    : runner_(model, {layer, layer + 1}, {}, [this](int) { return params_; }),
      evaluation_(model, {layer, layer + 1}, {.training = false}, [this](int) { return params_; }) {
  const LayerSpec& spec = model.spec.layers[at(layer)];
  for (int p : spec.params) {
    const TensorSpec& tensor = model.spec.params[at(p)].tensor;
    param_elements_.push_back(static_cast<std::size_t>(tensor.elements()));
    params_.push_back(new_memory(tensor));
    sums_.push_back(reinterpret_cast<float*>(new_memory(tensor)));
  }
  for (int e : spec.inputs) add(model.spec.edges[at(e)], e, inputs_, input_gradients_);
  for (int e : spec.outputs) {
    add(model.spec.edges[at(e)], e, outputs_, gradients_);
    output_bytes_ += model.spec.edges[at(e)].tensor.bytes();
  }
  runner_.after_forward = [this](int) {
    if (after_graph) after_graph();
  };
}

std::byte* PilotLayer::new_memory(const TensorSpec& tensor) {
  constexpr std::size_t kSpare = kAlignment / sizeof(float);
  auto& memory = storage_.emplace_back(tensor.bytes() / sizeof(float) + 2 * kSpare);
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  auto* const aligned = reinterpret_cast<std::byte*>(round_up(address, kAlignment));
  if (tensor.dtype == DType::f32) {
    kernels::fill_normal(reinterpret_cast<float*>(aligned),
                         static_cast<std::size_t>(tensor.elements()), 0.02, {});
  }
  return aligned;
}

void PilotLayer::add(const EdgeSpec& edge, int number, RangeRunner::EdgeMemory& values,
                     RangeRunner::EdgeMemory& of_gradients) {
  values[number] = new_memory(edge.tensor);
  if (has_gradient(edge)) of_gradients[number] = new_memory(edge.tensor);
}

void PilotLayer::fold(int param, const float* term) const {
  if (term) kernels::add(sums_[at(param)], term, param_elements_[at(param)]);
}

void PilotLayer::run_forward(const RangeRunner& runner) {
  const MeterScope scope(meter_);
  meter_.begin_op(std::numeric_limits<Bytes>::max());
  runner.forward(inputs_, outputs_);
}

void PilotLayer::forward() { run_forward(runner_); }

void PilotLayer::evaluate() { run_forward(evaluation_); }

void PilotLayer::backward() {
  const MeterScope scope(meter_);
  meter_.begin_op(std::numeric_limits<Bytes>::max());
  runner_.backward(inputs_, gradients_, input_gradients_,
                   [this](int, int param, const float* term) { fold(param, term); });
}

}  // namespace spillway
