#include "scheduler/plan/lower.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "tests/support/models/small_model.h"
#include "tests/support/random/random_workload.h"

namespace spillway {
namespace {

using testing::chain;
using testing::least_budget;
using testing::plan_job;
using testing::profile_of;

const Program& training(const JobPlan& plan) {
  return *plan.programs[StepKind{.update = false, .evaluate = false, .train = true}.index()];
}

std::map<OpKind, int> count(const Program& program) {
  std::map<OpKind, int> counts;
  for (const OpSpec& op : program.ops) ++counts[op.kind];
  return counts;
}

TEST(Lower, OrdersShardMajorForwardThenBackward) {
  const ModelSpec model = chain(4);
  const JobShape shape{.virtual_nodes = 3, .groups = 3, .lane_groups = {3}};
  const JobPlan plan = lower(model, profile_of(model), shape, {{0, 1}, {1, 3}, {3, 4}}, false);
  const Program& program = training(plan);
  EXPECT_EQ(count(program), (std::map<OpKind, int>{{OpKind::forward, 6}, {OpKind::backward, 9}}));
  std::vector<LayerRange> order;
  for (const UnitSpec& unit : program.units) {
    order.push_back(unit.layers);
    EXPECT_EQ(unit.num_ops, 3);
  }
  EXPECT_EQ(order, (std::vector<LayerRange>{{0, 1}, {1, 3}, {3, 4}, {1, 3}, {0, 1}}));
}

TEST(Lower, MakesOneUnitWithoutRecomputeForVnMajor) {
  const ModelSpec model = chain(4);
  const JobShape shape{.virtual_nodes = 4, .groups = 2, .lane_groups = {2}};
  const JobPlan plan = lower(model, profile_of(model), shape, {{0, 4}}, true);
  EXPECT_EQ(count(training(plan)), (std::map<OpKind, int>{{OpKind::backward, 4}}));
  EXPECT_EQ(training(plan).units.size(), 1u);
}

TEST(Lower, GivesLanesWholeGroups) {
  const ModelSpec model = chain(2);
  const JobShape shape{.virtual_nodes = 12, .groups = 6, .lane_groups = {1, 2, 3}};
  const JobPlan plan = lower(model, profile_of(model), shape, {{0, 2}}, false);
  std::map<int, int> vns_by_lane;
  for (const UnitSpec& unit : training(plan).units) vns_by_lane[unit.track] += unit.num_ops;
  EXPECT_EQ(vns_by_lane, (std::map<int, int>{{0, 2}, {1, 4}, {2, 6}}));
}

TEST(Lower, DividesEvaluationLikeTheGroups) {
  const ModelSpec model = chain(2);
  const JobShape shape{
      .virtual_nodes = 8, .groups = 8, .lane_groups = {6, 2}, .eval_virtual_nodes = 12};
  const JobPlan plan = lower(model, profile_of(model), shape, {{0, 2}}, true);
  std::vector<int> evaluated;
  for (const UnitSpec& unit : plan.programs[plan.step_kind(1).index()]->units) {
    if (unit.kind == OpKind::evaluate) evaluated.push_back(unit.num_ops);
  }
  EXPECT_EQ(evaluated, (std::vector<int>{9, 3}));
}

TEST(Lower, SplitsAsEvenlyAsPossible) {
  EXPECT_EQ(split_groups(8, 3), (std::vector<int>{3, 3, 2}));
  EXPECT_EQ(split_groups(4, 4), (std::vector<int>{1, 1, 1, 1}));
  EXPECT_EQ(split_groups(7, 1), (std::vector<int>{7}));
}

TEST(Lower, EvaluatesAfterTheUpdate) {
  const ModelSpec model = chain(2);
  const JobShape shape{.eval_virtual_nodes = 2, .max_steps = 5, .eval_steps = 2};
  const JobPlan plan = lower(model, profile_of(model), shape, {{0, 2}}, true);
  std::vector<std::int64_t> evaluated;
  for (std::int64_t step = 0; step <= 5; ++step) {
    if (plan.step_kind(step).evaluate) evaluated.push_back(step);
    EXPECT_EQ(plan.step_kind(step).update, step > 0);
    EXPECT_EQ(plan.step_kind(step).train, step < 5);
    EXPECT_TRUE(plan.programs[plan.step_kind(step).index()]);
  }
  EXPECT_EQ(evaluated, (std::vector<std::int64_t>{2, 4, 5}));
}

TEST(Lower, ReadsBatchesFirstOnTheHost) {
  const ModelSpec model = chain(3);
  const JobShape shape{.eval_virtual_nodes = 2, .max_steps = 5, .eval_steps = 2};
  const JobPlan plan = lower(model, profile_of(model), shape, {{0, 3}}, true);
  for (const std::int64_t step : {0, 1, 2, 5}) {
    std::vector<HostOpKind> kinds;
    for (const HostOpSpec& op : plan.programs[plan.step_kind(step).index()]->host_ops) {
      kinds.push_back(op.kind);
    }
    const auto loads = std::ranges::count(kinds, HostOpKind::load);
    EXPECT_EQ(loads,
              (plan.step_kind(step).evaluate ? 1 : 0) + (plan.step_kind(step).train ? 1 : 0));
    EXPECT_EQ(std::count(kinds.begin(), kinds.begin() + loads, HostOpKind::load), loads) << step;
  }
}

/// A chain whose first `frozen` layers nothing trains.
ModelSpec frozen_chain(int num_layers, int frozen) {
  ModelSpec model = chain(num_layers);
  for (int l = 0; l < frozen; ++l) {
    model.params[at(l)].trainable = false;
    model.edges[at(model.layers[at(l)].outputs[0])].differentiable = false;
  }
  return model;
}

std::vector<std::pair<OpKind, LayerRange>> order_of(const Program& program) {
  std::vector<std::pair<OpKind, LayerRange>> order;
  for (const UnitSpec& unit : program.units) order.emplace_back(unit.kind, unit.layers);
  return order;
}

/// The number of buffers of an edge, by kind.
std::map<BufferKind, int> buffers_of(const JobPlan& plan, int edge) {
  std::map<BufferKind, int> kinds;
  for (const BufferSpec& buffer : plan.layout.buffers) {
    if (buffer.part.edge == edge) ++kinds[buffer.kind];
  }
  return kinds;
}

TEST(Lower, RunsFrozenShardsForwardOnly) {
  const ModelSpec model = frozen_chain(5, 3);
  const std::vector<LayerRange> shards{{0, 1}, {1, 3}, {3, 4}, {4, 5}};
  const JobPlan plan = lower(model, profile_of(model), {.lane_groups = {1}}, shards, false);
  const Program& program = training(plan);
  EXPECT_EQ(order_of(program),
            (std::vector<std::pair<OpKind, LayerRange>>{{OpKind::forward, {0, 1}},
                                                        {OpKind::forward, {1, 3}},
                                                        {OpKind::forward, {3, 4}},
                                                        {OpKind::backward, {4, 5}},
                                                        {OpKind::backward, {3, 4}}}));
  const auto edge_into = [&](int layer) { return model.layers[at(layer)].inputs[0]; };
  const auto reads = [&](int edge) {
    const auto is_of_edge = [&](const BufferSpec& buffer) { return buffer.part.edge == edge; };
    const auto found = std::ranges::find_if(plan.layout.buffers, is_of_edge);
    return program.reads[static_cast<std::size_t>(found - plan.layout.buffers.begin())];
  };
  EXPECT_EQ(reads(edge_into(1)), 1);  // no backward reads it again
  EXPECT_EQ(reads(edge_into(3)), 2);  // the backward of its reader does
  EXPECT_TRUE(program.ops[4].outputs.empty());
  for (int layer : {1, 3}) {
    EXPECT_EQ(buffers_of(plan, edge_into(layer)),
              (std::map<BufferKind, int>{{BufferKind::boundary, 1}}));
  }
  EXPECT_EQ(buffers_of(plan, edge_into(4)),
            (std::map<BufferKind, int>{{BufferKind::boundary, 1}, {BufferKind::gradient, 1}}));
  const HostOpSpec& commit = program.host_ops.back();
  EXPECT_EQ(commit.kind, HostOpKind::commit);
  EXPECT_EQ(commit.unit_deps, std::vector<int>{4});
}

/// Observations are taken in backward, and gradients that a layer asks for pass through it.
TEST(Lower, KeepsTheBackwardOfFrozenShardsThatNeedIt) {
  const std::vector<LayerRange> shards{{0, 1}, {1, 2}, {2, 3}};
  const auto num_units = [&](const ModelSpec& model) {
    return training(lower(model, profile_of(model), {.lane_groups = {1}}, shards, false))
        .units.size();
  };
  ModelSpec model = frozen_chain(3, 2);
  EXPECT_EQ(num_units(model), 3u);
  model.params[1].statistic.kind = StatisticSpec::Kind::average;
  EXPECT_EQ(num_units(model), 4u);
  model = frozen_chain(3, 2);
  model.edges[at(model.layers[0].outputs[0])].differentiable = true;
  EXPECT_EQ(num_units(model), 5u);
}

/// Every virtual node passes every layer once forward (in the last shard as part of its backward)
/// and once backward, except in shards without sums and gradients. Every input of an op was written
/// before, and its reads are counted.
TEST(Lower, CompletesRandomPrograms) {
  int without_backward = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    const auto workload = testing::make_workload(seed);
    for (const auto& job : workload.jobs) {
      const Program& program = training(*job);
      const int layers = job->strategy.stages.back().layers.end;
      const int vns = static_cast<int>(job->layout.batch.size());
      std::map<std::tuple<OpKind, int, int>, int> passes;
      std::map<int, int> written, read;
      for (const OpSpec& op : program.ops) {
        for (int l = op.layers.begin; l < op.layers.end; ++l) ++passes[{op.kind, op.vn, l}];
        for (int b : op.inputs) {
          const bool is_batch = job->layout.buffers[at(b)].kind == BufferKind::batch;
          EXPECT_TRUE(is_batch || written[b] == 1);
          ++read[b];
        }
        for (int b : op.outputs) EXPECT_EQ(++written[b], 1);
      }
      const int last_shard = job->strategy.stages.back().layers.begin;
      for (int vn = 0; vn < vns; ++vn) {
        for (int l = 0; l < layers; ++l) {
          const int backward = passes[{OpKind::backward, vn, l}];
          EXPECT_EQ((passes[{OpKind::forward, vn, l}]), l < last_shard ? 1 : 0);
          EXPECT_LE(backward, 1);
          if (l < last_shard && job->layout.layers[at(l)].sum.bytes == 0) {
            without_backward += 1 - backward;
          } else {
            EXPECT_EQ(backward, 1);
          }
        }
      }
      for (const auto& [buffer, times] : read) EXPECT_EQ(program.reads[at(buffer)], times);
      for (int buffer : job->layout.batch) EXPECT_GT(read[buffer], 0);
      for (const auto& [buffer, times] : written) EXPECT_GT(read[buffer], 0);
    }
    if (::testing::Test::HasFailure()) break;
  }
  EXPECT_GT(without_backward, 100);
}

/// The reductions of a tied parameter's uses add to the same sum.
TEST(Lower, OrdersReductionsOfASharedParameter) {
  ModelSpec model = chain(4);
  model.layers.back().params.push_back(0);
  model.validate();
  const JobPlan plan = lower(model, profile_of(model), {}, {{0, 2}, {2, 4}}, false);
  const Program& program = training(plan);
  int last = -1, first = -1;
  for (int h = 0; h < static_cast<int>(program.host_ops.size()); ++h) {
    if (program.host_ops[at(h)].kind != HostOpKind::reduce) continue;
    if (program.host_ops[at(h)].index == 3) last = h;
    if (program.host_ops[at(h)].index == 0) first = h;
  }
  ASSERT_TRUE(last >= 0 && first >= 0);
  EXPECT_EQ(program.host_ops[at(first)].host_deps, std::vector<int>{last});
  EXPECT_TRUE(program.host_ops[at(last)].host_deps.empty());
}

/// Masters in a plane of their own, which devices read through copies.
TEST(Layout, ReservesBf16CopiesOfWeights) {
  ModelSpec model = chain(3);
  model.params[1].tensor.dtype = DType::bf16;
  for (EdgeSpec& edge : model.edges) {
    if (edge.producer >= 0) edge.tensor.dtype = DType::bf16;
  }
  const JobShape shape{.virtual_nodes = 2, .groups = 2, .lane_groups = {2}};
  const Layout layout = plan_job(model, shape, 64_MiB)->layout;
  const Layout fp32 = plan_job(chain(3), shape, 64_MiB)->layout;
  EXPECT_EQ(layout.weights_plane, fp32.weights_plane);
  EXPECT_EQ(layout.moments_plane, fp32.moments_plane);
  EXPECT_EQ(layout.sum_plane, fp32.sum_plane);
  EXPECT_EQ(layout.copies_plane, round_up(2 * 4096, kPage));
  EXPECT_EQ(fp32.copies_plane, 0u);
  for (int p = 0; p < 3; ++p) {
    const Layout::ParamPlace& place = layout.params[at(p)];
    const BufferSpec& block = layout.buffers[at(place.weights_buffer)];
    EXPECT_EQ(place.home, fp32.params[at(p)].home);
    EXPECT_EQ(block.home + place.offset_in_block == place.home, p != 1) << p;
    EXPECT_EQ(block.bytes, p == 1 ? 2u * 4096 : 4u * 4096);
  }
}

/// Alignment makes a block of a few elements equally large in both types.
TEST(Layout, ReservesBf16CopiesOfSmallBlocks) {
  ModelSpec model = chain(2, /*elements=*/8);
  model.params[0].tensor.dtype = DType::bf16;
  const Layout layout = plan_job(model, {.lane_groups = {1}}, 64_MiB)->layout;
  const Layout::ParamPlace& place = layout.params[0];
  EXPECT_EQ(layout.copies_plane, kPage);
  EXPECT_GE(layout.buffers[at(place.weights_buffer)].home, layout.moments_home);
}

TEST(Layout, SharesHomesOnlyBetweenBoundaryAndGradient) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(seed);
    for (const auto& job : testing::make_workload(seed).jobs) {
      const Layout& layout = job->layout;
      std::map<Bytes, Bytes> ranges;  // begin -> end
      for (const BufferSpec& buffer : layout.buffers) {
        if (buffer.home == kNoHome) continue;
        EXPECT_EQ(buffer.home % kAlignment, 0u);
        const Bytes end =
            buffer.shared < 0 ? layout.home_bytes : kSharedHomes + layout.shared_bytes;
        EXPECT_LE(buffer.home + buffer.home_bytes, end);
        ranges[buffer.home] = std::max(ranges[buffer.home], buffer.home + buffer.home_bytes);
      }
      for (const Layout::ParamPlace& place : layout.params) {
        const BufferSpec& block = layout.buffers[at(place.weights_buffer)];
        if (place.home == block.home + place.offset_in_block) continue;
        if (block.shared >= 0) {
          EXPECT_GE(place.home, kSharedHomes);
          EXPECT_LT(place.home, block.home);
        } else {
          EXPECT_LT(place.home, layout.weights_plane);
        }
        ranges[place.home] = std::max(ranges[place.home], place.home + kAlignment);
      }
      for (int i = 0; i < layout.moments; ++i) {
        const Bytes begin = layout.moments_home + static_cast<Bytes>(i) * layout.moments_plane;
        ranges[begin] = std::max(ranges[begin], begin + layout.moments_plane);
      }
      Bytes end = 0;
      for (const auto& [first, last] : ranges) {
        EXPECT_GE(first, end);
        end = last;
      }
    }
  }
}

TEST(Layout, LocatesSumsAndMoments) {
  ModelSpec model = chain(4);
  model.layers.back().params.push_back(0);  // tied
  const JobShape shape{.virtual_nodes = 4, .groups = 4, .lane_groups = {1, 3}, .moments = 2};
  const Layout layout = plan_job(model, shape, 64_MiB)->layout;
  EXPECT_EQ(layout.sum_planes, 3u);
  for (const Layout::LayerPlace& place : layout.layers) {
    ASSERT_EQ(place.merges.size(), 2u);
    EXPECT_EQ(place.merges[0].into, 0);
    EXPECT_EQ(place.merges[0].from, 1);
    EXPECT_EQ(place.merges[1].into, 0);
    EXPECT_EQ(place.merges[1].from, 2);
  }
  EXPECT_EQ(layout.params[0].sum, layout.sum_of_use(3, 1));
  EXPECT_NE(layout.params[0].sum, layout.sum_of_use(0, 0));
  EXPECT_EQ(layout.moment(1, 1) - layout.moment(1, 0), layout.moments_plane);
  EXPECT_GE(layout.moment(0, 0), layout.moments_home);
  for (const auto& slots : layout.sum_buffers) {
    for (const auto& by_layer : slots) {
      for (std::size_t l = 0; l < by_layer.size(); ++l) {
        EXPECT_EQ(layout.buffers[at(by_layer[l])].home_bytes, layout.layers[l].sum.packed_bytes);
      }
    }
  }
}

TEST(Lower, KeepsHomesOfStateAcrossPlans) {
  const ModelSpec model = chain(6);
  const JobShape shape{.virtual_nodes = 4, .groups = 4, .lane_groups = {4}};
  const JobShape uneven{.virtual_nodes = 4, .groups = 4, .lane_groups = {1, 3}};
  const auto whole = plan_job(model, shape, 64_MiB);
  for (const auto& plan :
       {plan_job(model, uneven, 64_MiB),
        plan_job(model, shape, 2 * least_budget(model, shape), OrderChoice::shard_major)}) {
    const Layout &a = whole->layout, &b = plan->layout;
    ASSERT_EQ(a.weights, b.weights);
    for (int buffer : a.weights) {
      EXPECT_EQ(a.buffers[at(buffer)].home, b.buffers[at(buffer)].home);
    }
    EXPECT_EQ(a.moments_home, b.moments_home);
    EXPECT_EQ(a.moments_plane, b.moments_plane);
    for (std::size_t l = 0; l < a.layers.size(); ++l) {
      EXPECT_EQ(a.layers[l].total.home, b.layers[l].total.home);
    }
    EXPECT_NE(a.home_bytes, b.home_bytes);
  }
}

}  // namespace
}  // namespace spillway
