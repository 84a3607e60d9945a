#include "spillway/spec.h"

#include <fmt/format.h>

#include <algorithm>

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

bool is_divided(const ModelSpec& model, const std::vector<int>& layers) {
  return std::ranges::any_of(
      layers, [&](int l) { return model.layers[static_cast<std::size_t>(l)].pieces > 1; });
}

/// Whether the pieces of a divided layer are beside each other, in order.
bool is_next_piece(const ModelSpec& model, std::size_t l) {
  const LayerSpec& layer = model.layers[l];
  const bool is_last = layer.piece + 1 == layer.pieces;
  if (layer.piece < 0 || layer.piece >= layer.pieces) return false;
  if (layer.piece > 0 && (l == 0 || model.layers[l - 1].piece + 1 != layer.piece)) return false;
  return is_last || (l + 1 < model.layers.size() && model.layers[l + 1].pieces == layer.pieces &&
                     model.layers[l + 1].piece == layer.piece + 1);
}

bool agrees_with_pieces(const ModelSpec& model, const EdgeSpec& edge,
                        const std::vector<int>& readers) {
  const auto is_piece_of = [&](int layer, int number, int pieces) {
    const LayerSpec& spec = model.layers[static_cast<std::size_t>(layer)];
    return spec.piece == number && spec.pieces == pieces;
  };
  if (edge.makers > 1) {
    const LayerSpec& first = model.layers[static_cast<std::size_t>(edge.producer)];
    if (first.piece != 0 || first.pieces != edge.makers || readers.size() != 1) return false;
    if (edge.tensor.dtype != DType::f32) return false;
  }
  if (!edge.differentiable || !is_divided(model, readers)) return edge.reading_pieces == 1;
  if (static_cast<int>(readers.size()) != edge.reading_pieces) return false;
  for (int i = 0; i < edge.reading_pieces; ++i) {
    if (!is_piece_of(readers[static_cast<std::size_t>(i)], i, edge.reading_pieces)) return false;
  }
  return true;
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
    require(is_next_piece(*this, l), layer, "is a piece, but not beside the others");
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
