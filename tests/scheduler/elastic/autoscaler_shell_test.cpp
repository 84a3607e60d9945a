#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "scheduler/elastic/autoscaler.h"
#include "scheduler/simulation/virtual_shell.h"
#include "tests/support/models/small_model.h"

namespace spillway {
namespace {

using testing::chain;

constexpr int kGroups = 12, kSteps = 300;

/// A job in the virtual shell that its autoscaler resizes after every step.
class ScaledJob {
 public:
  ScaledJob(const std::vector<std::shared_ptr<const Heuristic>>& rules, int num_devices,
            double host_s, int lanes = 1)
      : host_s_(host_s),
        scaler_(rules, useful_lanes(kGroups, num_devices), lanes),
        shell_(config(num_devices), {.admission_s = 0}) {
    shell_.on_action = [this](const Action& action) {
      if (std::holds_alternative<StepCommitted>(action)) {
        shell_.call_at(shell_.now_s(), [this](VirtualShell&) { committed(); });
      } else if (const auto* changed = std::get_if<PlanChanged>(&action)) {
        lanes_ = static_cast<int>(changed->plan->lanes.size());
        path_.push_back(lanes_);
      }
    };
    lanes_ = lanes;
    shell_.submit(JobId(0), plan(lanes), plan(kGroups)->layout.home_bytes);
    shell_.run();
  }

  int lanes() const { return lanes_; }
  const std::vector<int>& path() const { return path_; }
  const Engine& engine() const { return shell_.engine(); }
  double seconds() const { return shell_.now_s(); }

 private:
  static EngineConfig config(int num_devices) {
    return {.device_budgets = std::vector<Bytes>(at(num_devices), 1_GiB),
            .host_budget = 4_GiB,
            .policy = make_policy("lrtf")};
  }

  /// Every virtual node takes 2 ms; `host_s` does not depend on the number of lanes.
  std::shared_ptr<const JobPlan> plan(int lanes) const {
    const ModelSpec model = chain(1);
    Profile profile = testing::profile_of(model);
    profile.load_s = host_s_;
    const JobShape shape{.virtual_nodes = kGroups,
                         .groups = kGroups,
                         .lane_groups = split_groups(kGroups, lanes),
                         .max_steps = kSteps};
    return std::make_shared<JobPlan>(lower(model, profile, shape, {{0, 1}}, /*vn_major=*/false));
  }

  void committed() {
    const double now_s = shell_.now_s();
    scaler_.observe_step(lanes_, kGroups, now_s - committed_s_);
    committed_s_ = now_s;
    const auto left = kSteps - shell_.engine().job(JobId(0)).step;
    const int next = *scaler_.decide(now_s, static_cast<double>(left * kGroups)).lanes;
    if (next != lanes_) shell_.resize(JobId(0), plan(next));
  }

  double host_s_;
  Autoscaler scaler_;
  VirtualShell shell_;
  int lanes_ = 0;
  double committed_s_ = 0;
  std::vector<int> path_;
};

ScaledJob with(const char* rule, const HeuristicParams& params, double host_s, int lanes = 1) {
  return ScaledJob({make_heuristic(rule, params)}, kGroups, host_s, lanes);
}

TEST(AutoscalerInShell, GrowsToAllUsefulDevices) {
  const ScaledJob job = with("throughput", {}, /*host_s=*/1e-6);
  EXPECT_EQ(job.lanes(), 12);
  EXPECT_EQ(job.path(), (std::vector<int>{2, 3, 4, 6, 12}));
  EXPECT_EQ(job.engine().job(JobId(0)).end, JobEnd::done);
  EXPECT_EQ(job.engine().job(JobId(0)).step, kSteps) << "no step is lost";
  EXPECT_LT(job.seconds(), kSteps * kGroups * 2e-3 / 4);
}

TEST(AutoscalerInShell, ShrinksWhenUnsharedWorkDominates) {
  // On k lanes a step takes 20 + 24 / k ms: from 4 to 6 lanes s = 4 / 2 * (26 / 24 - 1) = 0.17,
  // from 6 to 12 s = 6 / 6 * (24 / 22 - 1) = 0.09.
  const ScaledJob job = with("throughput", {}, /*host_s=*/0.02);
  EXPECT_EQ(job.path(), (std::vector<int>{2, 3, 4, 6, 12, 6}));
  EXPECT_EQ(job.engine().job(JobId(0)).step, kSteps);
  EXPECT_EQ(with("throughput", {}, 0.02, 12).lanes(), 6) << "from above as well";
}

TEST(AutoscalerInShell, LimitsTheCostToTheValueOfTime) {
  const HeuristicParams cheap{{"value", 100}, {"price_per_device_hour", 0.01}};
  const HeuristicParams dear{{"value", 100}, {"price_per_device_hour", 3}};
  EXPECT_EQ(with("linear", cheap, 0.02).lanes(), 12);
  EXPECT_EQ(with("linear", dear, 0.02).lanes(), 1);
}

}  // namespace
}  // namespace spillway
