#include "models/pieces/divide.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "core/base/config_check.h"
#include "spillway/error.h"
#include "spillway/exported.h"
#include "tests/models/pieces/divided.h"
#include "tests/support/check/thrown.h"
#include "tests/support/disk/temporary_folder.h"
#include "tests/support/models/exported_transformer.h"
#include "tests/support/models/run_layers.h"

namespace spillway::testing {
namespace {

TEST(Divide, ComputesWhatTheWholeModelComputes) {
  const TransformerOptions options{.residual_dropout = 0.5, .input_dropout = 0.5};
  expect_same_in_pieces(transformer_rows(), exported_transformer(), {.attention = 2});
  expect_same_in_pieces(transformer_rows(), exported_transformer(options), {.attention = 2});
  expect_same_in_pieces(transformer_rows(), exported_transformer(options), {.mlp = 4});
  expect_same_in_pieces(transformer_rows(), exported_transformer(options), {.vocabulary = 3});
  expect_same_in_pieces(transformer_rows(), exported_transformer(options), {.linear = 2});
  expect_same_in_pieces(transformer_rows(), exported_transformer(options),
                        {.attention = 2, .mlp = 8, .vocabulary = 4});
  expect_same_in_pieces(transformer_rows(), exported_transformer(options),
                        {.attention = 2, .linear = 4});
}

TEST(Divide, NamesPiecesAfterTheirLayer) {
  const Divided net(exported_transformer(), {.attention = 2, .mlp = 2, .vocabulary = 2});
  const std::vector<std::string> names{"embed/0", "embed/1",    "embed",     "attn_input", "attn/0",
                                       "attn/1",  "attn",       "mlp_input", "mlp/0",      "mlp/1",
                                       "mlp",     "head_input", "head/0",    "head/1",     "loss"};
  EXPECT_EQ(layer_names(net.model->spec), names);
  const ModelSpec& spec = net.model->spec;
  EXPECT_EQ(spec.layers[8].kind, spec.layers[9].kind) << "pieces cost the same";
  EXPECT_NE(spec.layers[4].kind, spec.layers[5].kind) << "these have other constants";
  EXPECT_EQ(spec.params[0].name, "wte.weight/0");
  EXPECT_EQ(spec.params[1].tensor_name(), "wte.weight");
  EXPECT_EQ(spec.num_uses(0), 2) << "tied";
  EXPECT_FALSE(spec.has_predictions);
}

TEST(Divide, DropsOtherElementsInsidePieces) {
  const ExportedNet net = exported_transformer({.attention_dropout = 0.5});
  const Divided one(net, {}), other(net, {.attention = 2});
  const auto loss = [](const Divided& of, bool training) {
    return of.run(transformer_rows(), training).last.output;
  };
  EXPECT_TRUE(loss(other, true).equal(loss(other, true)));
  EXPECT_GT(relative_difference(loss(other, true), loss(one, true)), 1e-4);
  EXPECT_LT(relative_difference(loss(other, false), loss(one, false)), 1e-6);
}

std::string refusal(const ExportedNet& net, const TorchPieces& pieces) {
  return thrown<ConfigErrors>([&] { Divided(net, pieces); }).what();
}

void expect_text(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(Divide, SaysWhyNoLayerCanBeDivided) {
  const ExportedNet plain = exported_transformer();
  ExportedNet odd = plain;
  for (json& input : odd.document["inputs"]) input["limit"] = 11;
  for (auto& [name, tensor] : odd.tensors) {
    if (name == "wte.weight") tensor = tensor.narrow(0, 0, 11).contiguous();
  }
  odd.document["layers"][3]["output"]["shape"][2] = 11;
  expect_text(
      refusal(odd, {.vocabulary = 4}),
      "model.pieces.vocabulary: is 4, but no embedding or output layer of model "
      "'Transformer' can be divided: layer 'embed': 11 cannot be divided by 4; write another "
      "number, or 1");
  expect_text(refusal(exported_transformer({.writes = true}), {.mlp = 2}),
              "layer 'mlp': aten::relu_ changes a value in place");
  expect_text(refusal(exported_transformer({.ties = true}), {.vocabulary = 2}),
              "parameter 'wte.weight' is tied to a layer that stays whole");
  expect_text(refusal(plain, {.attention = 0}), "model.pieces.attention");
  ExportedNet unknown = plain;
  for (json& graph : unknown.document["graphs"]) {
    for (json& node : graph["nodes"]) {
      if (node["op"] == "aten::mul")
        node = testing::node("aten::cumsum", "", {node["args"][0], -1, nullptr});
    }
  }
  expect_text(refusal(unknown, {.attention = 2}), "aten::cumsum cannot work on parts");
}

TEST(Divide, TakesTheLargestNumberThatDividesALayer) {
  const Divided net(exported_transformer(), {.attention = 4, .mlp = 7, .vocabulary = 5});
  const std::vector<std::string> names = layer_names(net.model->spec);
  const auto count = [&](const std::string& layer) {
    return std::ranges::count_if(names, [&](auto& name) { return name.starts_with(layer + "/"); });
  };
  EXPECT_EQ(count("attn"), 2);
  EXPECT_EQ(count("mlp"), 4);
  EXPECT_EQ(count("embed"), 4);
  EXPECT_EQ(count("head"), 4);
}

TEST(Divide, LeavesOtherLayersWhole) {
  ExportedNet net = exported_transformer();
  net.document["loss"]["label_smoothing"] = 0.1;  // then no head is divided, nor its embedding
  EXPECT_NE(refusal(net, {.vocabulary = 2}).find("tied"), std::string::npos);
  net.document["loss"]["label_smoothing"] = 0.0;
  const Divided divided(net, {.attention = 2});
  EXPECT_EQ(divided.model->layers.size(), 4u + 1 + 1 + 2);
}

}  // namespace
}  // namespace spillway::testing
