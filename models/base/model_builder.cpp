#include "spillway/model_builder.h"

#include <fmt/format.h>

#include <utility>

namespace spillway {

int ModelBuilder::add_param(ParamSpec param) {
  spec().params.push_back(std::move(param));
  return static_cast<int>(spec().params.size()) - 1;
}

int ModelBuilder::add_piece(ParamSpec whole, int piece, int pieces, std::int64_t blocks) {
  if (pieces == 1) return add_param(std::move(whole));
  ParamSpec part = whole;
  const std::int64_t size = whole.tensor.dims.front().size / blocks;
  part.name = fmt::format("{}/{}", whole.name, piece);
  part.stored = {.name = std::move(whole.name),
                 .dims = std::move(whole.tensor.dims),
                 .outer = blocks,
                 .size = size,
                 .begin = size * piece / pieces,
                 .end = size * (piece + 1) / pieces};
  part.tensor.dims.front().size = blocks * (part.stored.end - part.stored.begin);
  return add_param(std::move(part));
}

void ModelBuilder::add_linear(std::vector<int>& params, const std::string& name, const Dim& out,
                              const Dim& in, double stddev, int piece, int pieces) {
  params.push_back(add_piece({.name = name + ".weight",
                              .tensor = {DType::f32, {out, in}},
                              .init = {InitSpec::Kind::normal, stddev}},
                             piece, pieces));
  params.push_back(add_piece(
      {.name = name + ".bias", .tensor = {DType::f32, {out}}, .decay = false}, piece, pieces));
}

int ModelBuilder::add_part(StoredSlice stored, std::vector<Dim> dims, int piece, double stddev) {
  const bool is_matrix = dims.size() > 1;
  ParamSpec param{.name = fmt::format("{}/{}", stored.name, piece),
                  .tensor = {DType::f32, std::move(dims)},
                  .decay = is_matrix};
  if (is_matrix) param.init = {InitSpec::Kind::normal, stddev};
  param.stored = std::move(stored);
  return add_param(std::move(param));
}

int ModelBuilder::add_batch(std::string name, TensorSpec tensor) {
  spec().edges.push_back(
      {.name = std::move(name), .tensor = std::move(tensor), .differentiable = false});
  return static_cast<int>(spec().edges.size()) - 1;
}

int ModelBuilder::add_layer(LayerSpec layer_spec, std::unique_ptr<Layer> layer, TensorSpec output) {
  const int edge = static_cast<int>(spec().edges.size());
  spec().edges.push_back({.name = layer_spec.name,
                          .tensor = std::move(output),
                          .producer = static_cast<int>(spec().layers.size())});
  layer_spec.outputs = {edge};
  add_loss(std::move(layer_spec), std::move(layer));
  return edge;
}

int ModelBuilder::add_term(LayerSpec layer_spec, std::unique_ptr<Layer> layer, EdgeSpec sum) {
  if (layer_spec.piece == 0) {
    sum.producer = static_cast<int>(spec().layers.size());
    sum.makers = layer_spec.pieces;
    sum.keeps_type = true;
    spec().edges.push_back(std::move(sum));
  }
  const int edge = static_cast<int>(spec().edges.size()) - 1;
  layer_spec.outputs = {edge};
  add_loss(std::move(layer_spec), std::move(layer));
  return edge;
}

void ModelBuilder::add_loss(LayerSpec layer_spec, std::unique_ptr<Layer> layer) {
  spec().layers.push_back(std::move(layer_spec));
  model_->layers.push_back(std::move(layer));
}

std::unique_ptr<Model> ModelBuilder::build() && {
  for (std::size_t e = 0; e < spec().edges.size(); ++e) {
    EdgeSpec& edge = spec().edges[e];
    if (!has_gradient(edge)) continue;
    const std::vector<int> readers = spec().consumers(static_cast<int>(e));
    if (spec().are_all_pieces(readers)) edge.reading_pieces = static_cast<int>(readers.size());
  }
  spec().validate();
  return std::move(model_);
}

}  // namespace spillway
