#pragma once

#include <string>

#include "spillway/spec.h"

namespace spillway::testing {

/// `blocks` blocks of a layer `norm`, one of `pieces` pieces that make terms, and one that reads
/// the sum; then the loss.
inline ModelSpec divided_chain(int blocks, int pieces, std::int64_t elements = 4096) {
  ModelSpec model{.family = "divided"};
  model.edges.push_back({"batch", {DType::i64, {{"sample", 2}}}, -1, false});
  const auto add_layer = [&](const std::string& name, int input) -> LayerSpec& {
    const int number = static_cast<int>(model.params.size());
    model.params.push_back({name + ".weight", {DType::f32, {{"channel", elements}}}, {}});
    return model.layers.emplace_back(
        LayerSpec{.name = name, .kind = "layer", .params = {number}, .inputs = {input}});
  };
  const auto add_edge = [&](const std::string& name, int makers) {
    model.edges.push_back({name,
                           {DType::f32, {{"sample", 2}, {"channel", 32}}},
                           static_cast<int>(model.layers.size())});
    model.edges.back().makers = makers;
    return static_cast<int>(model.edges.size()) - 1;
  };
  int read = 0;
  for (int b = 0; b < blocks; ++b) {
    const std::string block = "h." + std::to_string(b) + ".";
    const int normed = add_edge(block + "norm", 1);
    add_layer(block + "norm", read).outputs = {normed};
    model.edges[static_cast<std::size_t>(normed)].reading_pieces = pieces;
    const int terms = add_edge(block + "mlp", pieces);
    for (int i = 0; i < pieces; ++i) {
      LayerSpec& piece = add_layer(block + "mlp/" + std::to_string(i), normed);
      model.params.back().stored = {.name = block + "mlp.weight",
                                    .dims = {{"channel", pieces * elements}},
                                    .size = pieces * elements,
                                    .begin = i * elements,
                                    .end = (i + 1) * elements};
      piece.outputs = {terms};
      piece.piece = i;
      piece.pieces = pieces;
    }
    read = add_edge(block + "add", 1);
    add_layer(block + "add", terms).outputs = {read};
  }
  add_layer("loss", read);
  model.validate();
  return model;
}

}  // namespace spillway::testing
