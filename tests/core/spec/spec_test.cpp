#include "spillway/spec.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "spillway/error.h"
#include "spillway/ids.h"
#include "tests/support/models/divided_model.h"

namespace spillway {
namespace {

/// embed -> block -> head; embed and head share parameter 0; the batch holds tokens and targets.
ModelSpec chain() {
  ModelSpec spec;
  spec.family = "test";
  spec.params = {{"wte", {DType::f32, {{"vocab", 5}, {"hidden", 3}}}, {}},
                 {"w", {DType::f32, {{"hidden", 3}, {"hidden_out", 3}}}, {}}};
  const TensorSpec hidden{DType::f32, {{"sample", 2}, {"hidden", 3}}};
  const TensorSpec tokens{DType::i64, {{"sample", 2}}};
  spec.edges = {{"tokens", tokens, -1, false},
                {"targets", tokens, -1, false},
                {"x0", hidden, 0, true},
                {"x1", hidden, 1, true}};
  spec.layers = {{"embed", "embed", {0}, {0}, {2}},
                 {"block", "block", {1}, {2}, {3}},
                 {"head", "head", {0}, {3, 1}, {}}};
  return spec;
}

void expect_refused(const ModelSpec& spec, const std::string& part) {
  try {
    spec.validate();
    ADD_FAILURE() << "accepted, but should complain of: " << part;
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

TEST(TensorSpec, CountsElementsAndBytes) {
  const TensorSpec spec{DType::bf16, {{"a", 3}, {"b", 5}}};
  EXPECT_EQ(spec.elements(), 15);
  EXPECT_EQ(spec.bytes(), 30u);
  EXPECT_EQ(spec.shape(), (std::vector<std::int64_t>{3, 5}));
  EXPECT_EQ((TensorSpec{DType::i64, {}}).bytes(), 8u) << "no dimension: one element";
  EXPECT_EQ((TensorSpec{DType::f32, {{"a", 0}}}).bytes(), 0u);
}

TEST(ModelSpec, CountsATiedParameterOnce) {
  const ModelSpec spec = chain();
  EXPECT_EQ(spec.num_parameters(), 15 + 9);
  EXPECT_EQ(spec.num_uses(0), 2);
  EXPECT_EQ(spec.num_uses(1), 1);
}

TEST(ModelSpec, ListsTheReadersOfAnEdge) {
  const ModelSpec spec = chain();
  EXPECT_EQ(spec.consumers(2), std::vector<int>{1});
  EXPECT_EQ(spec.consumers(1), std::vector<int>{2});
}

/// The chain with a running statistic of the block.
ModelSpec with_statistic(ParamSpec statistic) {
  ModelSpec spec = chain();
  spec.layers[1].params.push_back(static_cast<int>(spec.params.size()));
  spec.params.push_back(std::move(statistic));
  return spec;
}

ParamSpec average() {
  return {.name = "mean",
          .tensor = {DType::f32, {{"hidden", 3}}},
          .trainable = false,
          .statistic = {StatisticSpec::Kind::average}};
}

TEST(ModelSpec, DoesNotCountRunningStatisticsAsParameters) {
  ParamSpec count = average();
  count.tensor = {DType::i64, {}};
  count.statistic.kind = StatisticSpec::Kind::count;
  EXPECT_NO_THROW(with_statistic(average()).validate());
  EXPECT_NO_THROW(with_statistic(count).validate());
  EXPECT_EQ(with_statistic(average()).num_parameters(), chain().num_parameters());
  EXPECT_TRUE(average().has_sum());
  EXPECT_FALSE(count.has_sum());
  EXPECT_TRUE(count.is_statistic());
  const ParamSpec weight = chain().params[0];
  EXPECT_FALSE(weight.is_statistic());
  EXPECT_TRUE(weight.has_sum());
}

TEST(ModelSpec, RefusesRunningStatisticsThatCannotBeFolded) {
  const std::string problem = "running statistic mean: must be f32";
  ParamSpec trained = average(), whole = average(), count = average();
  trained.trainable = true;
  whole.tensor.dtype = DType::i64;
  count.statistic.kind = StatisticSpec::Kind::count;
  for (const ParamSpec& bad : {trained, whole, count}) expect_refused(with_statistic(bad), problem);
  ModelSpec shared = with_statistic(average());
  shared.layers[2].params.push_back(2);
  expect_refused(shared, problem);
}

TEST(ModelSpec, RefusesIndicesOutsideItsSamples) {
  ModelSpec spec = chain();
  spec.indices = {{0, 1, 10}};
  EXPECT_NO_THROW(spec.validate());
  for (const IndexRange& bad : {IndexRange{0, 2, 10}, {-1, 1, 10}, {1, 0, 10}, {0, 1, 0}}) {
    spec.indices = {bad};
    expect_refused(spec, "indices outside its samples");
  }
}

/// Layers that make terms of an edge, or of its gradient, must be all pieces of one layer.
TEST(ModelSpec, RefusesEdgesThatDisagreeWithPieces) {
  const std::string problem = "does not agree with the pieces that make or read it";
  const ModelSpec divided = testing::divided_chain(1, 4);
  const int normed = divided.layers[0].outputs[0], terms = divided.layers[1].outputs[0];
  const auto changed = [&](const auto& change) {
    ModelSpec spec = divided;
    change(spec);
    return spec;
  };
  expect_refused(changed([&](ModelSpec& s) { s.edges[at(normed)].reading_pieces = 3; }), problem);
  expect_refused(changed([&](ModelSpec& s) { s.edges[at(terms)].reading_pieces = 2; }), problem);
  expect_refused(changed([](ModelSpec& s) { std::swap(s.layers[1].piece, s.layers[2].piece); }),
                 problem);
  expect_refused(changed([](ModelSpec& s) { s.layers[1].piece = 4; }),
                 "its piece must be from 0 to its number of pieces - 1");
  ModelSpec two = testing::divided_chain(2, 2);  // piece 0 of one layer and piece 1 of another
  two.layers[6].inputs = two.layers[1].inputs;
  two.layers[2].inputs = {0};
  two.edges[at(two.layers[4].outputs[0])].reading_pieces = 1;
  expect_refused(two, problem);
  EXPECT_NO_THROW(changed([&](ModelSpec& s) { s.edges[at(normed)].reading_pieces = 1; }).validate())
      << "a chain of additions";
}

TEST(ModelSpec, AcceptsAChain) { EXPECT_NO_THROW(chain().validate()); }

TEST(ModelSpec, RefusesNoLayers) {
  ModelSpec spec = chain();
  spec.layers.clear();
  expect_refused(spec, "no layers");
}

TEST(ModelSpec, RefusesIdsOutOfRange) {
  for (const int id : {-1, 99}) {
    ModelSpec spec = chain();
    spec.layers[1].params = {id};
    expect_refused(spec, "unknown parameter");
    spec = chain();
    spec.layers[1].inputs = {id};
    expect_refused(spec, "unknown input edge");
    spec = chain();
    spec.layers[1].outputs = {id};
    expect_refused(spec, "unknown output edge");
  }
}

TEST(ModelSpec, RefusesAnEdgeReadBeforeItIsProduced) {
  ModelSpec spec = chain();
  spec.layers[0].inputs = {3};
  expect_refused(spec, "layer embed: reads an edge before it is produced");
}

TEST(ModelSpec, AcceptsAnEdgeThatSkipsALayer) {
  ModelSpec spec = chain();
  spec.layers[2].inputs = {3, 2, 1};
  EXPECT_NO_THROW(spec.validate());
}

TEST(ModelSpec, RefusesAnEdgeReadTwiceByALayerOrByNone) {
  ModelSpec spec = chain();
  spec.layers[2].inputs = {3, 3, 1};
  expect_refused(spec, "layer head: reads an edge twice");
  spec.layers[2].inputs = {2, 1};
  expect_refused(spec, "layer block: has an output that no layer reads");
}

TEST(ModelSpec, RefusesAWrongNumberOfOutputs) {
  ModelSpec spec = chain();
  spec.layers[2].outputs = {3};
  expect_refused(spec, "layer head: must have one output edge");
  spec = chain();
  spec.layers[0].outputs.clear();
  expect_refused(spec, "layer embed: must have one output edge");
}

TEST(ModelSpec, RefusesAForeignOutput) {
  ModelSpec spec = chain();
  spec.layers[0].outputs = {3};
  expect_refused(spec, "layer embed: is not the producer");
}

}  // namespace
}  // namespace spillway
