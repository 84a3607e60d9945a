#include "trainer/profile/estimate.h"

#include <algorithm>

#include "spillway/ids.h"

namespace spillway {
namespace {

/// Elements of the largest activation that a layer reads or writes, and its rows: the product of
/// all dimensions but the last.
struct ActivationSize {
  double elements = 0, rows = 0;
};

ActivationSize largest_activation(const ModelSpec& model, const LayerSpec& layer) {
  ActivationSize largest;
  for (const auto* edges : {&layer.inputs, &layer.outputs}) {
    for (int e : *edges) {
      const TensorSpec& tensor = model.edges[at(e)].tensor;
      const auto elements = static_cast<double>(tensor.elements());
      if (model.edges[at(e)].producer < 0 || elements <= largest.elements) continue;
      largest = {elements, elements / static_cast<double>(tensor.dims.back().size)};
    }
  }
  return largest;
}

double output_elements(const ModelSpec& model, const LayerSpec& layer) {
  double elements = 0;
  for (int e : layer.outputs) elements += static_cast<double>(model.edges[at(e)].tensor.elements());
  return elements;
}

/// Bytes per element that a layer saves; the loss layer saves fp32.
double element_bytes(const ModelSpec& model, const LayerSpec& layer) {
  const bool is_loss = layer.outputs.empty();
  const DType dtype = is_loss ? DType::f32 : model.edges[at(layer.outputs.front())].tensor.dtype;
  return static_cast<double>(size_of(dtype));
}

/// Elements of the layer's matrix products.
double product_elements(const ModelSpec& model, const LayerSpec& layer, double rows) {
  double elements = 0;
  for (int p : layer.params) {
    const auto& dims = model.params[at(p)].tensor.dims;
    if (dims.size() > 1) elements += rows * static_cast<double>(dims.front().size);
  }
  return elements;
}

double matrix_flops(const ModelSpec& model, const LayerSpec& layer, double rows) {
  double flops = 0;
  for (int p : layer.params) {
    const TensorSpec& tensor = model.params[at(p)].tensor;
    if (tensor.dims.size() > 1) flops += 2 * rows * static_cast<double>(tensor.elements());
  }
  return flops;
}

}  // namespace

std::vector<LayerProfile> estimate_layers(const ModelSpec& model, double matmul_flops_per_s,
                                          double memory_bytes_per_s) {
  constexpr double kLayerSeconds = 20e-6;  // of a graph and its dispatch
  constexpr double kPasses = 4;            // over saved activations: two writes and two reads
  std::vector<LayerProfile> layers;
  for (const LayerSpec& layer : model.layers) {
    const ActivationSize activation = largest_activation(model, layer);
    const double flops = layer.forward_flops >= 0 ? layer.forward_flops
                                                  : matrix_flops(model, layer, activation.rows);
    double saved = layer.saved_elements;
    if (saved < 0) {
      saved = output_elements(model, layer) + 2 * product_elements(model, layer, activation.rows);
    }
    double weights = 0, sums = 0;
    for (int p : layer.params) {
      const ParamSpec& param = model.params[at(p)];
      weights = std::max(weights, static_cast<double>(param.tensor.bytes()));
      if (param.has_sum()) sums += static_cast<double>(param.master().bytes());
    }
    const double size = element_bytes(model, layer);
    const double kept = size * saved, one = size * activation.elements;
    LayerProfile cost;
    cost.forward_s =
        kLayerSeconds + flops / matmul_flops_per_s + kPasses * kept / memory_bytes_per_s;
    cost.backward_s = 3 * cost.forward_s;
    cost.merge_s = 1.5 * sums / memory_bytes_per_s;  // two are read, one is written
    cost.forward_peak = static_cast<Bytes>(kept);
    cost.graph_retained = static_cast<Bytes>(kept);
    cost.graph_peak = static_cast<Bytes>(kept + one);
    // Gradients of the last saved activations, and of the largest weight.
    cost.backward_peak = static_cast<Bytes>(1.5 * kept + one + weights);
    layers.push_back(cost);
  }
  return layers;
}

}  // namespace spillway
