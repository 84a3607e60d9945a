#include "spillway/spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "spillway/error.h"

namespace spillway {

Bytes size_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return 4;
    case DType::bf16:
      return 2;
    case DType::i64:
      return 8;
  }
  return 0;
}

std::int64_t TensorSpec::elements() const {
  std::int64_t n = 1;
  for (const Dim& dim : dims) n *= dim.size;
  return n;
}

std::vector<std::int64_t> TensorSpec::shape() const {
  std::vector<std::int64_t> sizes;
  for (const Dim& dim : dims) sizes.push_back(dim.size);
  return sizes;
}

TensorSpec ParamSpec::master() const {
  return {tensor.dtype == DType::bf16 ? DType::f32 : tensor.dtype, tensor.dims};
}

TensorSpec ParamSpec::finished_sum() const {
  return {trainable ? gradient : master().dtype, tensor.dims};
}

std::int64_t ModelSpec::num_parameters() const {
  std::int64_t n = 0;
  for (const ParamSpec& param : params) n += param.is_statistic() ? 0 : param.tensor.elements();
  return n;
}

int ModelSpec::num_metric_sums() const {
  int n = 0;
  for (const MetricSpec& metric : metrics) n += metric.num_sums;
  return n;
}

std::vector<int> ModelSpec::consumers(int edge) const {
  std::vector<int> found;
  for (std::size_t l = 0; l < layers.size(); ++l) {
    if (std::ranges::count(layers[l].inputs, edge) > 0) found.push_back(static_cast<int>(l));
  }
  return found;
}

bool ModelSpec::are_all_pieces(const std::vector<int>& numbers) const {
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const LayerSpec& layer = layers[static_cast<std::size_t>(numbers[i])];
    const auto piece = static_cast<int>(i);
    if (layer.piece != piece || numbers[i] != numbers[0] + piece) return false;
    if (layer.pieces != static_cast<int>(numbers.size())) return false;
  }
  return !numbers.empty();
}

int ModelSpec::num_uses(int param) const {
  return static_cast<int>(std::ranges::count_if(
      layers, [&](const LayerSpec& l) { return std::ranges::count(l.params, param) > 0; }));
}

namespace {

void validate_param(const ModelSpec& model, int param) {
  const ParamSpec& spec = model.params[static_cast<std::size_t>(param)];
  if (spec.gradient != DType::f32 && spec.gradient != DType::bf16) {
    throw Error(
        fmt::format("model {}, parameter {}: finished sums of its gradient must be f32 or bf16",
                    model.family, spec.name));
  }
  if (!spec.is_statistic()) return;
  const bool is_right = spec.is_observed() ? spec.tensor.dtype == DType::f32
                                           : spec.tensor == TensorSpec{DType::i64, {}};
  if (is_right && !spec.trainable && model.num_uses(param) == 1) return;
  throw Error(fmt::format(
      "model {}, running statistic {}: must be f32 (a count: one i64), not trainable, and of one "
      "layer",
      model.family, spec.name));
}

bool is_in_samples(const ModelSpec& model, const IndexRange& range) {
  if (range.begin < 0 || range.end < range.begin || range.limit < 1) return false;
  return std::ranges::all_of(model.edges, [&](const EdgeSpec& edge) {
    const TensorSpec& rows = edge.tensor;
    return edge.producer >= 0 ||
           (!rows.dims.empty() && range.end <= rows.elements() / rows.dims.front().size);
  });
}

bool agrees_with_pieces(const ModelSpec& model, const EdgeSpec& edge,
                        const std::vector<int>& readers) {
  if (edge.makers > 1) {
    std::vector<int> makers(static_cast<std::size_t>(edge.makers));
    std::iota(makers.begin(), makers.end(), edge.producer);
    if (!model.are_all_pieces(makers) || readers.size() != 1) return false;
    if (edge.tensor.dtype != DType::f32) return false;
  }
  if (edge.reading_pieces == 1) return true;
  return edge.differentiable && static_cast<int>(readers.size()) == edge.reading_pieces &&
         model.are_all_pieces(readers);
}

void validate_metrics(const ModelSpec& model) {
  for (const MetricSpec& metric : model.metrics) {
    const bool is_named = !metric.name.empty() && metric.name != "eval_loss" &&
                          metric.name != "final_loss" &&
                          std::ranges::count(model.metrics, metric.name, &MetricSpec::name) == 1;
    if (is_named && metric.num_sums >= 0 && metric.value) continue;
    throw Error(
        fmt::format("model {}, metric '{}': needs a name of its own, a number of sums and a value",
                    model.family, metric.name));
  }
}

}  // namespace

void ModelSpec::validate() const {
  const auto require = [&](bool holds, const LayerSpec& layer, const char* problem) {
    if (!holds) throw Error(fmt::format("model {}, layer {}: {}", family, layer.name, problem));
  };
  if (layers.empty()) throw Error(fmt::format("model {} has no layers", family));
  for (std::size_t l = 0; l < layers.size(); ++l) {
    const LayerSpec& layer = layers[l];
    const bool last = l + 1 == layers.size();
    for (int p : layer.params) {
      require(p >= 0 && p < static_cast<int>(params.size()), layer, "unknown parameter");
    }
    for (int e : layer.inputs) {
      require(e >= 0 && e < static_cast<int>(edges.size()), layer, "unknown input edge");
      const EdgeSpec& edge = edges[static_cast<std::size_t>(e)];
      require(edge.end_of_makers() <= static_cast<int>(l), layer,
              "reads an edge before it is produced");
      require(std::ranges::count(layer.inputs, e) == 1, layer, "reads an edge twice");
    }
    require(layer.outputs.size() == (last ? 0u : 1u), layer,
            "must have one output edge (the last layer none: it is the loss)");
    for (int e : layer.outputs) {
      require(e >= 0 && e < static_cast<int>(edges.size()), layer, "unknown output edge");
      require(edges[static_cast<std::size_t>(e)].is_made_by(static_cast<int>(l)), layer,
              "is not the producer of its output edge");
    }
    require(layer.piece >= 0 && layer.piece < layer.pieces, layer,
            "its piece must be from 0 to its number of pieces - 1");
  }
  for (std::size_t e = 0; e < edges.size(); ++e) {
    if (edges[e].producer < 0) continue;
    const std::vector<int> readers = consumers(static_cast<int>(e));
    const LayerSpec& maker = layers[static_cast<std::size_t>(edges[e].producer)];
    require(!readers.empty(), maker, "has an output that no layer reads");
    require(agrees_with_pieces(*this, edges[e], readers), maker,
            "has an output that does not agree with the pieces that make or read it");
  }
  for (std::size_t p = 0; p < params.size(); ++p) validate_param(*this, static_cast<int>(p));
  validate_metrics(*this);
  for (const IndexRange& range : indices) {
    if (is_in_samples(*this, range)) continue;
    throw Error(
        fmt::format("model {}: has indices outside its samples, or none to choose", family));
  }
}

}  // namespace spillway
