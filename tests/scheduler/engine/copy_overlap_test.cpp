#include "scheduler/engine/copy_overlap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <variant>
#include <vector>

#include "scheduler/simulation/virtual_shell.h"
#include "tests/support/models/small_model.h"
#include "tests/support/random/random_workload.h"

namespace spillway {
namespace {

using testing::chain;

constexpr CopyQueue kDown = CopyQueue::from_host, kUp = CopyQueue::to_host;

TEST(CopyOverlap, IsThePartOfCopiesDuringOps) {
  CopyOverlap overlap;
  overlap.copy_started(kDown);
  overlap.copy_started(kUp);
  EXPECT_EQ(overlap.op_done(0, 4), 0);
  EXPECT_EQ(overlap.copy_done(kDown, 1, 3), 2);
  EXPECT_EQ(overlap.op_done(5, 8), 0);
  EXPECT_EQ(overlap.copy_done(kUp, 3, 6), 2) << "one second of each op";
  overlap.copy_started(kDown);
  EXPECT_EQ(overlap.copy_done(kDown, 8, 10), 0);
  EXPECT_EQ(overlap.op_done(9, 12), 1) << "reported after the copy";
}

/// A manual run: every action ends when the test decides.
class ByHand {
 public:
  explicit ByHand(const std::shared_ptr<const JobPlan>& plan, Bytes budget)
      : plan_(plan),
        engine_({.device_budgets = {budget}, .host_budget = 1_GiB, .policy = make_policy("lrtf")}) {
    std::vector<Action> actions;
    engine_.submit(JobId(0), plan, plan->layout.home_bytes, {}, actions);
    note(actions);
  }

  /// Copies end first and at once, except those that started after a running op: they take the
  /// middle of it. An op takes ten seconds. A host op takes a hundred, during which nothing else
  /// happens.
  void run() {
    while (!open_.empty()) {
      auto next = first<StartCopy>();
      if (next == open_.end()) next = first<StartOp>();
      if (next == open_.end()) next = open_.begin();
      const auto [id, action] = *next;
      open_.erase(next);
      const bool is_copy = std::holds_alternative<StartCopy>(action);
      const bool is_op = std::holds_alternative<StartOp>(action);
      Done done{.id = id, .started_s = now_s_, .finished_s = now_s_};
      if (is_copy && op_runs(id)) {
        ++inside;
        done.started_s = now_s_ + 3;
        done.finished_s = now_s_ + 7;
      } else if (is_op) {
        now_s_ = done.finished_s = now_s_ + 10;
      } else if (!is_copy) {
        now_s_ = done.finished_s = now_s_ + 100;
      }
      std::vector<Action> actions;
      engine_.on_done(done, actions);
      note(actions);
    }
  }

  const DeviceCounters& counters() const { return engine_.device(DeviceId(0)).counters; }
  int inside = 0;  ///< copies during an op

 private:
  template <typename Kind>
  std::map<ActionId, Action>::iterator first() {
    return std::ranges::find_if(
        open_, [](const auto& item) { return std::holds_alternative<Kind>(item.second); });
  }
  bool op_runs(ActionId before) const {
    return std::ranges::any_of(open_, [&](const auto& item) {
      return item.first < before && std::holds_alternative<StartOp>(item.second);
    });
  }
  void note(const std::vector<Action>& actions) {
    for (const Action& action : actions) {
      std::visit(
          [&](const auto& a) {
            if constexpr (requires { a.id; }) open_[a.id] = action;
          },
          action);
    }
  }

  std::shared_ptr<const JobPlan> plan_;
  Engine engine_;
  double now_s_ = 0;
  std::map<ActionId, Action> open_;
};

TEST(CopyOverlap, CountsCopiesDuringComputeAsHidden) {
  const ModelSpec model = chain(6);
  const JobShape shape{.virtual_nodes = 4, .groups = 4, .lane_groups = {4}, .max_steps = 3};
  const Bytes budget = 2 * testing::least_budget(model, shape);
  ByHand run(testing::plan_job(model, shape, budget), budget);
  run.run();
  EXPECT_GT(run.inside, 0);
  EXPECT_DOUBLE_EQ(run.counters().copy_s, 4.0 * run.inside);
  EXPECT_DOUBLE_EQ(run.counters().hidden_s, run.counters().copy_s);
}

struct Interval {
  double begin_s, end_s;
};

double shared_s(const Interval& a, const Interval& b) {
  return std::max(0.0, std::min(a.end_s, b.end_s) - std::max(a.begin_s, b.begin_s));
}

TEST(CopyOverlap, EqualsABruteForceCount) {
  double hidden_s = 0, copy_s = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    const testing::Workload workload = testing::make_workload(seed);
    VirtualShell shell(workload.config, workload.costs);
    std::map<ActionId, Action> open;
    std::map<DeviceId, std::vector<Interval>> ops, copies;
    shell.on_action = [&](const Action& action) {
      if (const auto* op = std::get_if<StartOp>(&action)) open[op->id] = action;
      if (const auto* copy = std::get_if<StartCopy>(&action)) open[copy->id] = action;
    };
    shell.on_completion = [&](const Done& done) {
      const auto found = open.find(done.id);
      if (found == open.end()) return;
      const Interval interval{done.started_s, done.finished_s};
      if (const auto* op = std::get_if<StartOp>(&found->second)) {
        ops[op->device].push_back(interval);
      } else {
        copies[std::get<StartCopy>(found->second).device].push_back(interval);
      }
    };
    for (std::size_t j = 0; j < workload.jobs.size(); ++j) {
      shell.submit(JobId(j), workload.jobs[j]);
    }
    shell.run();
    for (std::size_t d = 0; d < shell.engine().num_devices(); ++d) {
      double expected_s = 0;
      for (const Interval& copy : copies[DeviceId(d)]) {
        for (const Interval& op : ops[DeviceId(d)]) expected_s += shared_s(copy, op);
      }
      const DeviceCounters& counters = shell.engine().device(DeviceId(d)).counters;
      EXPECT_NEAR(counters.hidden_s, expected_s, 1e-9);
      EXPECT_LE(counters.hidden_s, counters.copy_s + 1e-9);
      hidden_s += counters.hidden_s;
      copy_s += counters.copy_s;
    }
  }
  EXPECT_GT(hidden_s, 0.05 * copy_s);
  EXPECT_LT(hidden_s, 0.95 * copy_s);
}

}  // namespace
}  // namespace spillway
