#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "scheduler/plan/placement.h"
#include "tests/support/models/divided_model.h"
#include "tests/support/models/small_model.h"
#include "tests/support/run/watched_run.h"

/// Strategies on the virtual clock: pipelines, pieces on several devices, sums of several units.
namespace spillway {
namespace {

using testing::chain;
using testing::divided_chain;
using testing::profile_of;
using testing::WatchedRun;

constexpr int kTrackSteps = 3;
constexpr double kForward = 1e-3;

JobShape tracked_shape(int virtual_nodes) {
  return {.virtual_nodes = virtual_nodes,
          .groups = virtual_nodes,
          .lane_groups = {virtual_nodes},
          .max_steps = kTrackSteps};
}

EngineConfig devices(int number, Bytes budget = 64_MiB) {
  return {.device_budgets = std::vector<Bytes>(at(number), budget),
          .host_budget = 1_GiB,
          .policy = make_policy("fifo")};
}

/// `stages` stages of as many layers.
StrategyConfig pipeline(int stages, int layers) {
  StrategyConfig config;
  for (int l = 0; l < layers; ++l) {
    config.place.push_back({{"layer." + std::to_string(l)}, {l * stages / layers}});
  }
  return config;
}

std::shared_ptr<JobPlan> plan_of(const ModelSpec& model, const JobShape& shape,
                                 const Strategy& strategy) {
  auto plan = std::make_shared<JobPlan>(lower(model, profile_of(model, kForward), shape, strategy));
  for (int t = 0; t < strategy.tracks; ++t) plan->track_devices.emplace_back(t);
  return plan;
}

void expect_all_done(const WatchedRun& run) {
  EXPECT_EQ(run.checker.problems(), std::vector<std::string>{});
  EXPECT_EQ(run.checker.strays(), 0u);
  for (const JobEnded& end : run.all<JobEnded>()) EXPECT_EQ(end.end, JobEnd::done);
  EXPECT_TRUE(run.engine().all_ended());
}

/// Copies of a kind of buffers that `keep(copy)`.
template <typename Keep>
int copies(const WatchedRun& run, const JobPlan& plan, BufferKind kind, const Keep& keep) {
  return static_cast<int>(run.all<StartCopy>([&](const StartCopy& copy) {
                               return plan.layout.buffers[at(copy.buffer)].kind == kind &&
                                      keep(copy);
                             })
                              .size());
}

/// A step of V virtual nodes through S equal stages takes (V + S - 1) / V times that of a stage.
/// Without kept graphs each stage but the last computes forward twice.
TEST(Tracks, PipelineIsNearItsIdeal) {
  constexpr int kStages = 4, kNodes = 16, kLayers = 8;
  const ModelSpec model = chain(kLayers);
  for (const GraphChoice graphs : {GraphChoice::keep, GraphChoice::recompute}) {
    StrategyConfig config = pipeline(kStages, kLayers);
    config.graphs = graphs;
    const auto plan = plan_of(model, tracked_shape(kNodes), placed(config, model, kNodes));
    ASSERT_EQ(plan->strategy.stages.size(), at(kStages));
    WatchedRun run(devices(kStages), {.copy_bytes_per_s = 1e10, .copy_latency_s = 1e-7});
    run.submit(plan);
    run.run();
    expect_all_done(run);
    const bool keeps = graphs == GraphChoice::keep;
    const double stage_s = kLayers / kStages * (keeps ? 2 : 3) * kForward;
    const double ideal_s = kTrackSteps * (kNodes + kStages - 1) * stage_s;
    EXPECT_LT(run.shell.now_s(), 1.1 * ideal_s);
    EXPECT_GT(run.shell.now_s(), 0.9 * ideal_s);
    EXPECT_EQ(run.checker.graphs_used(), at(keeps ? kTrackSteps * kNodes * (kStages - 1) : 0));
    EXPECT_EQ(run.checker.graphs_dropped(), 0u);
  }
}

/// Graphs fill the room that is left, and leave when a unit needs it. Every budget that the plan
/// allows is enough.
TEST(Tracks, KeepsGraphsWhileThereIsRoom) {
  constexpr int kStages = 2, kNodes = 8;
  const ModelSpec model = chain(kStages);
  StrategyConfig config = pipeline(kStages, kStages);
  config.first = FirstChoice::forward;  // all graphs of the first stage would wait at once
  const auto plan = plan_of(model, tracked_shape(kNodes), placed(config, model, kNodes));
  const auto used = [&](Bytes budget) {
    WatchedRun run(devices(kStages, budget));
    run.submit(plan);
    run.run();
    expect_all_done(run);
    const std::size_t graphs = run.checker.graphs_used();
    EXPECT_EQ(run.engine().device(DeviceId(0)).counters.kept_graphs, graphs);
    return graphs;
  };
  const std::size_t all = kTrackSteps * kNodes;
  EXPECT_EQ(used(64_MiB), all);
  const auto graph = std::ranges::find(plan->layout.buffers, BufferKind::graph, &BufferSpec::kind);
  const std::size_t few = used(plan->needed_budget + 8 * graph->bytes);
  EXPECT_GT(few, 0u);
  EXPECT_LT(few, all);
  used(plan->needed_budget);
}

/// The first of four stages holds what lies between forward and backward of `window` virtual nodes.
TEST(Tracks, WindowBoundsWhatAPipelineHolds) {
  constexpr int kStages = 4, kNodes = 16;
  const ModelSpec model = chain(kStages);
  std::map<int, Bytes> peaks;
  for (int window : {2, 0}) {
    StrategyConfig config = pipeline(kStages, kStages);
    config.first = FirstChoice::forward;
    config.window = window;
    WatchedRun run(devices(kStages));
    run.submit(plan_of(model, tracked_shape(kNodes), placed(config, model, kNodes)));
    run.run();
    expect_all_done(run);
    peaks[window] = run.engine().device(DeviceId(1)).counters.peak_bytes;
  }
  EXPECT_LT(peaks[2], peaks[0]);
}

/// Three jobs fill the bubbles of each other's pipelines.
TEST(Tracks, JobsFillEachOthersBubbles) {
  constexpr int kStages = 4, kNodes = 4;
  const ModelSpec model = chain(kStages);
  std::map<int, double> busy;
  for (int jobs : {1, 3}) {
    WatchedRun run(devices(kStages), {.copy_bytes_per_s = 1e10, .copy_latency_s = 1e-7});
    const Strategy strategy = placed(pipeline(kStages, kStages), model, kNodes);
    for (int j = 0; j < jobs; ++j) run.submit(plan_of(model, tracked_shape(kNodes), strategy));
    run.run();
    expect_all_done(run);
    for (int d = 0; d < kStages; ++d) {
      busy[jobs] += run.engine().device(DeviceId(d)).counters.busy_s / run.shell.now_s() / kStages;
    }
  }
  EXPECT_LT(busy[1], 0.6);
  EXPECT_GT(busy[3], 0.8);
}

/// A pipeline whose stages keep their blocks between virtual nodes.
std::shared_ptr<JobPlan> keeping_plan(int stages, int nodes, std::int64_t elements = 4096) {
  const ModelSpec model = chain(2 * stages, elements);
  StrategyConfig config = pipeline(stages, 2 * stages);
  config.chunk = 1;
  config.graphs = GraphChoice::recompute;
  return plan_of(model, tracked_shape(nodes), placed(config, model, nodes));
}

const TrackNeed& first_need(const JobPlan& plan) {
  return plan.programs[kStepAfterStep.index()]->track_needs[0];
}

/// Where there is no room for the blocks of all jobs, some wait until others have ended a step. So
/// jobs load their weights once a step, however many there are, and wherever their tracks may go.
TEST(Tracks, JobsDoNotDisplaceEachOthersBlocks) {
  constexpr int kStages = 2, kNodes = 8, kJobs = 4;
  const auto bound = keeping_plan(kStages, kNodes);
  const auto free = std::make_shared<JobPlan>(*bound);
  free->track_devices.clear();
  const TrackNeed& need = first_need(*bound);
  const auto weights = static_cast<int>(bound->layout.weights.size());
  const auto is_load = [](const StartCopy& copy) {
    return copy.direction == CopyDirection::to_device;
  };
  for (const auto& plan : {bound, free}) {
    for (const char* policy : {"lrtf", "srtf", "fifo", "round_robin", "random"}) {
      for (const Bytes tracks : {Bytes{1}, Bytes{2}}) {
        EngineConfig engine = devices(kStages, tracks * need.blocks + 3 * need.room);
        engine.policy = make_policy(policy);
        WatchedRun run(std::move(engine), {.copy_bytes_per_s = 1e8, .copy_latency_s = 1e-7});
        for (int j = 0; j < kJobs; ++j) run.submit(plan);
        run.run();
        expect_all_done(run);
        EXPECT_EQ(copies(run, *plan, BufferKind::weights, is_load), kJobs * kTrackSteps * weights)
            << policy << " with room for " << tracks;
      }
    }
  }
}

/// A job that needs more room than one of the others leaves is not passed by them for ever.
TEST(Tracks, LargeJobsAreNotPassedForEver) {
  constexpr int kStages = 2, kNodes = 4;
  const auto small = keeping_plan(kStages, kNodes), large = keeping_plan(kStages, kNodes, 5600);
  const TrackNeed& need = first_need(*small);
  ASSERT_GT(need.blocks + first_need(*large).blocks, 2 * need.blocks + 3 * need.room);
  EngineConfig engine = devices(kStages, 2 * need.blocks + 3 * need.room);
  engine.policy = make_policy("round_robin");
  WatchedRun run(std::move(engine));
  for (int j = 0; j < 4; ++j) run.submit(small);
  const JobId last = run.submit(large);
  run.run_into_step(last, 1);  // it has committed one
  for (int j = 0; j < 4; ++j) EXPECT_LT(run.job(JobId(j)).step, kTrackSteps);
  run.run();
  expect_all_done(run);
}

/// Jobs with as many tracks as half of the devices that are alike train beside each other, and the
/// heavy stages of two pipelines are on different ones.
TEST(Tracks, AreSpreadOverDevicesThatAreAlike) {
  constexpr int kNodes = 4;
  const auto used_by = [&](const std::shared_ptr<JobPlan>& plan, int num_devices) {
    WatchedRun run(devices(num_devices));
    for (int j = 0; j < 2; ++j) run.submit(plan);
    run.run_until([&] { return !run.job(JobId(1)).places.empty(); });
    return std::pair(run.job(JobId(0)).places, run.job(JobId(1)).places);
  };
  const auto even = keeping_plan(2, kNodes);
  even->track_devices.clear();
  const std::vector<DeviceId> front{DeviceId(0), DeviceId(1)}, back{DeviceId(2), DeviceId(3)};
  EXPECT_EQ(used_by(even, 4), std::pair(front, back));
  const ModelSpec model = chain(4);
  const StrategyConfig uneven{{{{"*"}, {0}}, {{"layer.3"}, {1}}}};
  const auto heavy = plan_of(model, tracked_shape(kNodes), placed(uneven, model, kNodes));
  heavy->track_devices.clear();
  EXPECT_EQ(used_by(heavy, 2), std::pair(front, std::vector(front.rbegin(), front.rend())));
}

/// What several devices read goes to each of them and stays where it was made. Nothing of it passes
/// through its home, and neither do the terms that come back.
TEST(Tracks, LendsWhatSeveralDevicesRead) {
  constexpr int kPieces = 4, kNodes = 2;
  const ModelSpec model = divided_chain(1, kPieces);
  const Strategy strategy =
      placed({{{{"*"}, {0}}, {{"*.mlp"}, {0, 1, 2, 3}, kPieces}}}, model, kNodes);
  const auto plan = plan_of(model, tracked_shape(kNodes), strategy);
  WatchedRun run(devices(kPieces));
  run.submit(plan);
  run.run();
  expect_all_done(run);
  const auto is_lent = [](const StartCopy& copy) { return copy.is_shared; };
  const auto passes_home = [](const StartCopy& copy) { return !copy.peer.valid(); };
  // Their backward reads it again, from the copy that they have.
  EXPECT_EQ(copies(run, *plan, BufferKind::boundary, is_lent),
            kTrackSteps * kNodes * (kPieces - 1));
  EXPECT_EQ(copies(run, *plan, BufferKind::boundary, passes_home), 0);
  EXPECT_EQ(copies(run, *plan, BufferKind::gradient, passes_home), 0);
}

/// The weights of one set are loaded once a step, those of sets that displace each other for each
/// unit that does not follow one with them.
TEST(Tracks, LoadsTheWeightsOfASetOnceAStep) {
  constexpr int kNodes = 4;
  const ModelSpec model = chain(2);
  std::map<int, int> loads;
  for (int second : {0, 1}) {
    StrategyConfig config{{{{"layer.0"}, {0}}, {{"layer.1"}, {0}, 1, second}}};
    Strategy strategy = placed(config, model, kNodes);
    if (strategy.stages.size() == 1) {
      strategy.stages = {{{0, 1}, strategy.stages[0].cells}, {{1, 2}, strategy.stages[0].cells}};
    }
    const auto plan = plan_of(model, tracked_shape(kNodes), strategy);
    WatchedRun run(devices(1));
    run.submit(plan);
    run.run();
    expect_all_done(run);
    const auto is_load = [](const StartCopy& copy) {
      return copy.direction == CopyDirection::to_device;
    };
    loads[second] = copies(run, *plan, BufferKind::weights, is_load) / kTrackSteps;
  }
  EXPECT_EQ(loads[0], 2);
  // Forward and backward of layer 0 enclose layer 1; the next virtual node goes on with layer 0.
  EXPECT_EQ(loads[1], 1 + 2 * kNodes);
}

/// On a device without room for the sums of both stages, they go home between units and come back
/// with all their terms (the checker counts them). A sum that is on its way is waited for.
TEST(Tracks, KeepsSumsAtHomeBetweenUnits) {
  constexpr int kNodes = 4;
  const ModelSpec model = chain(2);
  const Profile profile = profile_of(model);
  Strategy strategy = placed({}, model, kNodes);
  strategy.stages = {{{0, 1}, strategy.stages[0].cells}, {{1, 2}, strategy.stages[0].cells}};
  const auto plan = plan_of(model, tracked_shape(kNodes), strategy);
  WatchedRun run(devices(1, plan->needed_budget));
  run.submit(plan);
  run.run();
  expect_all_done(run);
  const auto comes_back = [](const StartCopy& copy) {
    return copy.direction == CopyDirection::to_device;
  };
  EXPECT_GT(copies(run, *plan, BufferKind::sum, comes_back), kTrackSteps * kNodes);
  WatchedRun roomy(devices(1));
  roomy.submit(plan);
  roomy.run();
  expect_all_done(roomy);
  EXPECT_EQ(copies(roomy, *plan, BufferKind::sum, comes_back), 0);
}

/// With fewer devices than tracks, tracks share them; a device that is lost repeats the step.
TEST(Tracks, GoOnWithFewerDevices) {
  constexpr int kStages = 4, kNodes = 4;
  const ModelSpec model = chain(kStages);
  const Strategy strategy = placed(pipeline(kStages, kStages), model, kNodes);
  WatchedRun run(devices(3));
  auto plan = plan_of(model, tracked_shape(kNodes), strategy);
  plan->track_devices.clear();
  const JobId job = run.submit(plan);
  run.run_until([&] {
    const auto* op = std::get_if<StartOp>(&run.actions.back());
    return op && op->step == 1 && op->device == DeviceId(1);
  });
  run.shell.lose_device(DeviceId(1));
  run.run();
  EXPECT_EQ(run.checker.problems(), std::vector<std::string>{});
  EXPECT_TRUE(run.engine().all_ended());
  EXPECT_EQ(run.checker.steps(job), kTrackSteps);
  EXPECT_EQ(run.checker.attempts(job), 1);
}

}  // namespace
}  // namespace spillway
