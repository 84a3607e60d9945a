#include "scheduler/plan/cut.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "scheduler/plan/lower.h"
#include "spillway/error.h"
#include "tests/support/models/small_model.h"

namespace spillway::testing {
namespace {

/// Edges e1..e5 of a chain; the fourth and the last layer also read e1.
ModelSpec skipping() {
  ModelSpec model = chain(6);
  model.layers[3].inputs.push_back(1);
  model.layers[5].inputs.push_back(1);
  model.edges[1].tensor.dims[1].size = 4096;
  model.validate();
  return model;
}

std::vector<LayerRange> single_layers() { return {{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}, {5, 6}}; }

TEST(Cut, PassesABoundaryOverOtherShards) {
  const ModelSpec model = skipping();
  const Cut cut(model, single_layers());
  EXPECT_EQ(cut.readers(1), (std::vector{1, 3, 5}));
  EXPECT_EQ(cut.boundaries(2).in, (std::vector{2}));
  EXPECT_EQ(cut.boundaries(3).in, (std::vector{1, 3}));
  EXPECT_EQ(cut.boundaries(0).out, (std::vector{1}));
  EXPECT_EQ(cut.next_reader(1, 1), 3);
  EXPECT_EQ(cut.next_reader(1, 5), -1);
}

TEST(Cut, MakesNoBoundaryInsideAShard) {
  const ModelSpec model = skipping();
  const Cut cut(model, {{0, 4}, {4, 6}});
  EXPECT_EQ(cut.readers(1), (std::vector{1}));
  EXPECT_EQ(cut.boundaries(0).out, (std::vector{1, 4}));
  EXPECT_TRUE(cut.readers(2).empty());
}

TEST(Cut, GivesLiveEdgesDifferentSlots) {
  const ModelSpec model = skipping();
  const BoundarySlots slots(model, Cut(model, single_layers()));
  for (int e = 2; e <= 5; ++e) EXPECT_NE(slots.of({e, {}}), slots.of({1, {}})) << e;
  for (int e = 2; e < 5; ++e) EXPECT_NE(slots.of({e, {}}), slots.of({e + 1, {}})) << e;
  EXPECT_EQ(slots.of({2, {}}), slots.of({4, {}})) << "dead when the other is made";
  EXPECT_GE(slots.bytes(slots.of({1, {}})), model.edges[1].tensor.bytes());
}

TEST(Cut, ReservesMemoryForReadEdgesOnly) {
  const ModelSpec model = skipping(), plain = chain(6);
  const auto need = [](const ModelSpec& m, LayerRange layers) {
    return unit_need(m, profile_of(m), JobShape{}, layers).op_area;
  };
  const Bytes edge = round_up(model.edges[1].tensor.bytes(), kAlignment);
  EXPECT_EQ(need(model, {2, 3}), need(plain, {2, 3}));
  // The edge, its gradient from later layers, and its gradient with this shard's share.
  EXPECT_EQ(need(model, {3, 4}), need(plain, {3, 4}) + 3 * edge);
  EXPECT_EQ(need(model, {5, 6}), need(plain, {5, 6}) + 2 * edge);
}

TEST(Cut, SumsGradientsFromTheLastReader) {
  const ModelSpec model = skipping();
  const JobPlan plan = lower(model, profile_of(model), JobShape{}, single_layers(), false);
  const auto& program = *plan.programs[StepKind{.train = true}.index()];
  std::vector<int> made, read;  // gradients of e1
  for (const OpSpec& op : program.ops) {
    const auto is_gradient = [&](int b) {
      const BufferSpec& buffer = plan.layout.buffers[at(b)];
      return buffer.kind == BufferKind::gradient && buffer.part.edge == 1;
    };
    std::ranges::copy_if(op.outputs, std::back_inserter(made), is_gradient);
    std::ranges::copy_if(op.inputs, std::back_inserter(read), is_gradient);
  }
  ASSERT_EQ(made.size(), 3u);
  EXPECT_EQ(made, read) << "each is read once, by the next reader or the maker";
  EXPECT_NE(made[0], made[1]);
  EXPECT_NE(made[1], made[2]);
}

TEST(Cut, RefusesASecondBatchEdge) {
  ModelSpec model = chain(2);
  EXPECT_EQ(batch_edge(model), 0);
  model.edges.push_back({"more", {DType::i64, {{"sample", 2}}}, -1, false});
  EXPECT_THROW(batch_edge(model), Error);
}

}  // namespace
}  // namespace spillway::testing
