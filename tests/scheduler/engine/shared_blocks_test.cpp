#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "scheduler/simulation/virtual_shell.h"
#include "tests/support/models/small_model.h"

/// Jobs that train small parameters beside frozen ones.
namespace spillway {
namespace {

using testing::chain;
using testing::least_budget;
using testing::plan_job;

constexpr int kDepth = 12;
constexpr std::int64_t kSharedSteps = 5;
constexpr Bytes kFrozen = 16384;  // bytes of a layer
constexpr Bytes kBase = kDepth * kFrozen;

/// A chain of frozen layers with an adapter each. `content`: of the frozen parameters.
ModelSpec adapted(const std::string& content) {
  ModelSpec model = chain(kDepth, kFrozen / 4);
  for (int l = 0; l < kDepth; ++l) {
    model.params[at(l)].trainable = false;
    model.params[at(l)].content = content;
    model.layers[at(l)].params.push_back(kDepth + l);
    model.params.push_back(
        {"layer." + std::to_string(l) + ".adapter", {DType::f32, {{"channel", 64}}}, {}});
  }
  model.validate();
  return model;
}

JobShape shape() {
  return {.virtual_nodes = 2, .groups = 1, .lane_groups = {1}, .max_steps = kSharedSteps};
}

std::vector<std::shared_ptr<const JobPlan>> jobs_of(const std::vector<std::string>& contents,
                                                    Bytes budget) {
  std::vector<std::shared_ptr<const JobPlan>> jobs;
  for (const std::string& content : contents) {
    jobs.push_back(plan_job(adapted(content), shape(), budget, OrderChoice::shard_major));
  }
  return jobs;
}

Bytes quarter() { return std::max(kBase / 4, least_budget(adapted("base"), shape())); }

struct SharedOutcome {
  EngineSnapshot counters;
  std::vector<JobEnd> ends;
  std::int64_t most_apart = 0;  ///< committed steps of the jobs, at any time
};

SharedOutcome run(
    const std::vector<std::shared_ptr<const JobPlan>>& jobs, PolicyKind policy,
    std::vector<Bytes> budgets,
    const std::function<void(VirtualShell&)>& before = [](VirtualShell&) {}) {
  VirtualShell shell(
      {.device_budgets = std::move(budgets), .host_budget = 1_GiB, .policy = make_policy(policy)},
      {.copy_bytes_per_s = 1e8});
  for (std::size_t j = 0; j < jobs.size(); ++j) shell.submit(JobId(j), jobs[j]);
  before(shell);
  SharedOutcome outcome;
  std::vector<std::int64_t> steps(jobs.size());
  while (shell.advance()) {
    shell.engine().check_integrity();
    for (std::size_t j = 0; j < jobs.size(); ++j) steps[j] = shell.engine().job(JobId(j)).step;
    const auto [least, most] = std::ranges::minmax(steps);
    outcome.most_apart = std::max(outcome.most_apart, most - least);
  }
  outcome.counters = snapshot_of(shell.engine());
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    outcome.ends.push_back(shell.engine().job(JobId(j)).end);
    EXPECT_EQ(shell.engine().job(JobId(j)).phase, JobPhase::ended);
  }
  for (std::size_t d = 0; d < shell.engine().num_devices(); ++d) {
    EXPECT_EQ(shell.engine().copies(DeviceId(d)).used(), 0u);
  }
  EXPECT_EQ(shell.engine().host_used(), 0u);
  return outcome;
}

const std::vector<std::string> kOneBase(8, "base");

TEST(SharedBlocks, AreLoadedForAllJobsAtOnce) {
  for (const PolicyKind policy : {PolicyKind::lrtf, PolicyKind::fifo, PolicyKind::round_robin,
                                  PolicyKind::srtf, PolicyKind::random}) {
    SCOPED_TRACE(to_string(policy));
    const auto jobs = jobs_of(kOneBase, quarter());
    ASSERT_GE(jobs.front()->strategy.stages.size(), 4u);
    const SharedOutcome shared = run(jobs, policy, {quarter()});
    EXPECT_LE(shared.counters.devices[0].h2d_shared_bytes, 2 * kBase * kSharedSteps);
    EXPECT_GT(shared.counters.devices[0].h2d_shared_bytes, kBase * kSharedSteps);
    EXPECT_EQ(std::ranges::count(shared.ends, JobEnd::done), 8);
  }
}

/// As adapted(), behind a frozen embedding of a quarter of all blocks that the head uses too.
ModelSpec adapted_language_model() {
  ModelSpec model = adapted("base");
  const int embedding = static_cast<int>(model.params.size());
  model.params.push_back({.name = "embedding",
                          .tensor = {DType::f32, {{"channel", kDepth * kFrozen / 16}}},
                          .trainable = false,
                          .content = "embedding"});
  for (const int l : {0, kDepth - 1}) model.layers[at(l)].params = {embedding};
  model.edges[at(model.layers[0].outputs[0])].differentiable = false;
  model.validate();
  return model;
}

TEST(SharedBlocks, AreLoadedAsOftenByAnyNumberOfJobs) {
  const ModelSpec model = adapted_language_model();
  const Bytes base = plan_job(model, shape(), 64_MiB)->layout.shared_bytes;
  const Bytes budget = std::max(base * 2 / 5, least_budget(model, shape()));
  const auto plan = plan_job(model, shape(), budget, OrderChoice::shard_major);
  ASSERT_GE(plan->strategy.stages.size(), 4u);
  const auto loaded = [&](std::size_t num_jobs) {
    const SharedOutcome outcome = run(std::vector(num_jobs, plan), PolicyKind::lrtf, {budget});
    return outcome.counters.devices[0].h2d_shared_bytes;
  };
  const Bytes alone = loaded(1);
  EXPECT_LE(alone, 2 * base * kSharedSteps);
  EXPECT_LE(loaded(4), alone);
  EXPECT_LE(loaded(16), alone);
}

TEST(SharedBlocks, DoNotJoinJobsOfOtherContent) {  // negative control
  std::vector<std::string> contents;
  for (int j = 0; j < 8; ++j) contents.push_back("base " + std::to_string(j));
  const auto jobs = jobs_of(contents, quarter());
  const SharedOutcome apart = run(jobs, PolicyKind::lrtf, {quarter()});
  EXPECT_GT(apart.counters.devices[0].h2d_shared_bytes, 8 * kBase * kSharedSteps);
  EXPECT_GE(apart.counters.host_peak, 8 * kBase);
  const SharedOutcome unknown =
      run(jobs_of(std::vector<std::string>(8), quarter()), PolicyKind::lrtf, {quarter()});
  EXPECT_EQ(unknown.counters.devices[0].h2d_shared_bytes, 0u);
  EXPECT_GE(unknown.counters.host_peak, 8 * kBase);
}

TEST(SharedBlocks, CountOnceInHostMemory) {
  const auto jobs = jobs_of(kOneBase, quarter());
  ASSERT_EQ(jobs.front()->layout.shared_bytes, kBase);
  const Bytes home = jobs.front()->layout.home_bytes;
  EXPECT_LT(home, kBase);
  EXPECT_EQ(run(jobs, PolicyKind::fifo, {quarter()}).counters.host_peak, kBase + 8 * home);
}

TEST(SharedBlocks, AdmitMoreJobsWithTheSameHostMemory) {
  const auto jobs = jobs_of(kOneBase, quarter());
  const Bytes home = jobs.front()->layout.home_bytes;
  VirtualShell shell({.device_budgets = {quarter()},
                      .host_budget = kBase + 3 * home,
                      .policy = make_policy(PolicyKind::fifo)},
                     {});
  for (std::size_t j = 0; j < jobs.size(); ++j) shell.submit(JobId(j), jobs[j]);
  EXPECT_EQ(shell.engine().first_waiting(), JobId(3));
  EXPECT_EQ(shell.engine().host_used(), kBase + 3 * home);
  shell.run();
  EXPECT_TRUE(shell.engine().all_ended());
  EXPECT_EQ(shell.engine().host_used(), 0u);
}

TEST(SharedBlocks, StayWithTheOthersWhenAJobEnds) {
  const auto jobs = jobs_of(kOneBase, quarter());
  for (int when = 1; when < 60; ++when) {
    const SharedOutcome outcome =
        run(jobs, PolicyKind::lrtf, {quarter(), 2 * quarter()}, [&](VirtualShell& shell) {
          shell.call_at(when * 1e-3, [](VirtualShell& s) {
            s.stop(JobId(0));
            s.fail_next(JobId(1), "made to fail");
            s.lose_device(DeviceId(1));
          });
        });
    EXPECT_EQ(outcome.ends[0], JobEnd::stopped);
    EXPECT_EQ(outcome.ends[1], JobEnd::failed);
    EXPECT_EQ(std::ranges::count(outcome.ends, JobEnd::done), 6);
  }
}

/// One shard, so that the group of a job's next step is that of its last.
TEST(SharedBlocks, LetEachJobRunOnceBeforeThePolicyChoosesAgain) {
  const auto jobs = jobs_of(kOneBase, 64_MiB);
  ASSERT_EQ(jobs.front()->strategy.stages.size(), 1u);
  for (const PolicyKind policy : {PolicyKind::lrtf, PolicyKind::fifo, PolicyKind::srtf}) {
    const SharedOutcome outcome = run(jobs, policy, {64_MiB});
    EXPECT_LE(outcome.most_apart, 2) << to_string(policy);
    EXPECT_EQ(outcome.counters.devices[0].h2d_shared_bytes, kBase) << "they stay on the device";
  }
}

TEST(SharedBlocks, HoldOnlyFrozenParametersOfKnownContent) {
  ModelSpec model = adapted("base");
  model.params[0].content.clear();
  model.params[1].trainable = true;
  model.params[2].name = "another name";
  model.params[3].tensor.dtype = DType::bf16;
  const auto shared = [](const ModelSpec& spec) {
    std::map<std::string, const SharedBlock*> by_content;
    static std::vector<std::shared_ptr<const JobPlan>> kept;
    kept.push_back(plan_job(spec, shape(), 64_MiB));
    for (const SharedBlock& block : kept.back()->layout.shared) by_content[block.content] = &block;
    return by_content;
  };
  const auto some = shared(model), all = shared(adapted("base"));
  EXPECT_EQ(all.size(), at(kDepth));
  EXPECT_EQ(some.size(), at(kDepth - 2));
  EXPECT_EQ(
      std::ranges::count_if(some, [&](const auto& block) { return all.contains(block.first); }),
      kDepth - 4);
}

}  // namespace
}  // namespace spillway
