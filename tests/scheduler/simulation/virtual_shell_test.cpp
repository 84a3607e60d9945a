#include "scheduler/simulation/virtual_shell.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "spillway/ids.h"
#include "tests/support/models/small_model.h"
#include "tests/support/random/random_workload.h"

namespace spillway {
namespace {

using testing::chain;
using testing::least_budget;
using testing::make_workload;
using testing::plan_job;
using testing::Workload;

constexpr Bytes kAmple = 64_MiB;

/// An action with its end.
struct Span {
  Action action;
  double called_s = 0, started_s = 0, finished_s = 0;
};

/// A run, recorded.
struct Record {
  explicit Record(const Workload& w) : workload(w), shell(w.config, w.costs) {
    shell.on_action = [this](const Action& action) {
      std::visit(
          [&](const auto& a) {
            if constexpr (requires { a.id; }) spans[a.id] = {action, shell.now_s(), -1, -1};
          },
          action);
    };
    shell.on_completion = [this](const Done& done) {
      EXPECT_GE(shell.now_s(), last_s);
      EXPECT_EQ(shell.now_s(), done.finished_s);
      last_s = shell.now_s();
      spans.at(done.id).started_s = done.started_s;
      spans.at(done.id).finished_s = done.finished_s;
    };
    for (std::size_t j = 0; j < w.jobs.size(); ++j) shell.submit(JobId(j), w.jobs[j]);
    shell.run();
  }

  template <typename Kind, typename Keep>
  std::vector<Span> all(const Keep& keep) const {
    std::vector<Span> found;
    for (const auto& [id, span] : spans) {
      const auto* action = std::get_if<Kind>(&span.action);
      if (action && keep(*action)) found.push_back(span);
    }
    return found;
  }

  const Workload& workload;
  VirtualShell shell;
  std::map<ActionId, Span> spans;
  double last_s = 0;
};

/// In the order in which the engine starts them.
void expect_one_at_a_time(const std::vector<Span>& spans) {
  for (std::size_t i = 1; i < spans.size(); ++i) {
    EXPECT_GE(spans[i].started_s, spans[i - 1].finished_s);
  }
}

std::size_t most_at_once(const std::vector<Span>& spans) {
  std::vector<std::pair<double, int>> changes;  // an end precedes a start at the same time
  for (const Span& span : spans) {
    if (span.finished_s <= span.started_s) continue;
    changes.insert(changes.end(), {{span.started_s, 1}, {span.finished_s, -1}});
  }
  std::ranges::sort(changes);
  int now = 0, most = 0;
  for (const auto& change : changes) most = std::max(most, now += change.second);
  return static_cast<std::size_t>(most);
}

TEST(VirtualShell, RunsQueuesInOrderAfterDependencies) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    const Workload workload = make_workload(seed);
    const Record record(workload);
    for (const auto& [id, span] : record.spans) {
      ASSERT_GE(span.finished_s, span.started_s) << "action " << id << " never ended";
      EXPECT_GE(span.started_s, span.called_s);
      const auto* op = std::get_if<StartOp>(&span.action);
      if (op == nullptr) continue;
      for (ActionId before : op->after) {
        EXPECT_GE(span.started_s, record.spans.at(before).finished_s);
      }
    }
    for (std::size_t d = 0; d < workload.config.device_budgets.size(); ++d) {
      const DeviceId id(d);
      expect_one_at_a_time(record.all<StartOp>([&](const auto& op) { return op.device == id; }));
      for (std::size_t queue = 0; queue < kCopyQueues; ++queue) {
        expect_one_at_a_time(record.all<StartCopy>([&](const auto& copy) {
          return copy.device == id && copy.queue() == static_cast<CopyQueue>(queue);
        }));
      }
    }
    EXPECT_LE(most_at_once(record.all<StartHostOp>([](const auto&) { return true; })),
              at(workload.costs.host_workers));
    if (::testing::Test::HasFailure()) break;
  }
}

TEST(VirtualShell, ChargesTheCostOfActions) {
  const Workload workload = make_workload(7);
  const Record record(workload);
  std::map<std::pair<DeviceId, CopyDirection>, double> ended;
  for (const auto& [id, span] : record.spans) {
    const double took_s = span.finished_s - span.started_s;
    if (const auto* op = std::get_if<StartOp>(&span.action)) {
      const Program& program = *workload.jobs[op->job.index()]->programs[op->step_kind];
      EXPECT_NEAR(took_s, program.ops[at(op->op)].cost_s, 1e-9);
    } else if (const auto* copy = std::get_if<StartCopy>(&span.action)) {
      double& ended_s = ended[{copy->device, copy->direction}];
      const bool was_idle = ended_s < span.started_s;
      ended_s = span.finished_s;
      const double link_s = static_cast<double>(copy->bytes) / workload.costs.copy_bytes_per_s;
      const double latency_s = workload.costs.copy_latency_s;
      EXPECT_GE(took_s, link_s + (was_idle ? latency_s : 0) - 1e-9);
      EXPECT_LE(took_s, link_s + latency_s + 1e-9);
    } else if (std::holds_alternative<AdmitJob>(span.action)) {
      EXPECT_NEAR(took_s, workload.costs.admission_s, 1e-9);
    }
  }
}

TEST(VirtualShell, DelaysAnIdleQueueByTheDispatchLatency) {
  Workload workload = make_workload(7);
  workload.costs.dispatch_latency_s = 1e-3;
  const Record record(workload);
  std::map<std::size_t, double> least_s;  // by kind of action
  for (const auto& [id, span] : record.spans) {
    if (std::holds_alternative<AdmitJob>(span.action)) continue;
    if (std::holds_alternative<ReleaseJob>(span.action)) continue;
    double& least = least_s.emplace(span.action.index(), 1).first->second;
    least = std::min(least, span.started_s - span.called_s);
  }
  ASSERT_EQ(least_s.size(), 3u);  // ops, copies, host ops
  for (const auto& [kind, seconds] : least_s) EXPECT_NEAR(seconds, 1e-3, 1e-9);
}

/// A job that spills on its only device.
Workload spilling() {
  const ModelSpec model = chain(6);
  const JobShape shape{.virtual_nodes = 4, .max_steps = 2};
  const Bytes budget = 2 * least_budget(model, shape);
  return {{.device_budgets = {budget}, .host_budget = 1_GiB, .policy = make_policy("fifo")},
          {.copy_bytes_per_s = 1e8},
          {plan_job(model, shape, budget)}};
}

/// The ratio of each op's time to its cost, ascending.
std::vector<double> stretches(const Workload& workload) {
  const Record record(workload);
  std::vector<double> found;
  for (const Span& span : record.all<StartOp>([](const auto&) { return true; })) {
    const auto& op = std::get<StartOp>(span.action);
    const Program& program = *workload.jobs[op.job.index()]->programs[op.step_kind];
    found.push_back((span.finished_s - span.started_s) / program.ops[at(op.op)].cost_s);
  }
  std::ranges::sort(found);
  return found;
}

TEST(VirtualShell, SlowsOpsWhileOtherDevicesCompute) {
  Workload workload = spilling();
  workload.config.device_budgets.push_back(workload.config.device_budgets.front());
  workload.costs.contention = {.threads = 2, .factor = 1.5};
  workload.costs.copy_bytes_per_s = 1e15;
  workload.costs.link_bytes_per_s = {1e8, 1e8};  // a copy waits nearly all of its time
  EXPECT_NEAR(stretches(workload).back(), 1, 1e-6) << "one lane computes alone";
  workload.jobs.push_back(workload.jobs.front());
  EXPECT_NEAR(stretches(workload).back(), 1.5, 1e-6);
  EXPECT_NEAR(stretches(workload).front(), 1, 1e-6) << "the first finds the other device idle";
}

TEST(VirtualShell, SlowsOpsWhileCopiesUseACore) {
  Workload workload = spilling();
  workload.costs.contention = {.threads = 2, .factor = 1.5};
  EXPECT_NEAR(stretches(workload).back(), 1.5, 1e-9);
  workload.costs.contention.threads = 0;
  EXPECT_NEAR(stretches(workload).back(), 1, 1e-9) << "the control: nothing is known of cores";
}

TEST(VirtualShell, ContinuesAStartedJobWithoutUpdates) {
  const ModelSpec model = chain(4);
  JobShape shape{.virtual_nodes = 4,
                 .eval_virtual_nodes = 1,
                 .first_step = 6,
                 .max_steps = 9,
                 .eval_steps = 3};
  Workload workload = spilling();
  workload.jobs = {plan_job(model, shape, workload.config.device_budgets[0])};
  const Record record(workload);
  std::vector<std::int64_t> commits, updates, evaluations;
  for (const Span& span : record.all<StartHostOp>([](const auto&) { return true; })) {
    const auto& op = std::get<StartHostOp>(span.action);
    const HostOpKind kind = workload.jobs[0]->programs[op.step_kind]->host_ops[at(op.op)].kind;
    if (kind == HostOpKind::commit) commits.push_back(op.step);
    if (kind == HostOpKind::update) updates.push_back(op.step);
    if (kind == HostOpKind::finish_evaluation) evaluations.push_back(op.step);
  }
  EXPECT_EQ(commits, (std::vector<std::int64_t>{6, 7, 8}));
  EXPECT_EQ(evaluations, (std::vector<std::int64_t>{6, 9})) << "the one that was due comes again";
  EXPECT_EQ(std::ranges::min(updates), 7) << "those of step 6 were done before";
  EXPECT_EQ(updates.size(), 3 * model.params.size());
}

TEST(Contention, GrowsToTheMeasuredValueThenSharesCores) {
  const Contention contention{.threads = 3, .factor = 2};
  EXPECT_DOUBLE_EQ(contention.at(1), 1);
  EXPECT_DOUBLE_EQ(contention.at(2), 1.5);
  EXPECT_DOUBLE_EQ(contention.at(3), 2);
  EXPECT_DOUBLE_EQ(contention.at(6), 4);
  EXPECT_DOUBLE_EQ(Contention{}.at(6), 1);
}

bool any_overlap(const std::vector<Span>& some, const std::vector<Span>& others) {
  return std::ranges::any_of(some, [&](const Span& a) {
    return std::ranges::any_of(others, [&](const Span& b) {
      return a.started_s < b.finished_s && b.started_s < a.finished_s;
    });
  });
}

TEST(VirtualShell, OverlapsCopiesWithOpsAndEachOther) {
  const Workload workload = spilling();
  const Record record(workload);
  const auto ops = record.all<StartOp>([](const auto&) { return true; });
  const auto copies = [&](CopyDirection direction) {
    return record.all<StartCopy>([&](const auto& copy) { return copy.direction == direction; });
  };
  const auto up = copies(CopyDirection::to_device), down = copies(CopyDirection::to_host);
  EXPECT_TRUE(any_overlap(up, ops));
  EXPECT_TRUE(any_overlap(down, ops));
  EXPECT_TRUE(any_overlap(up, down));
}

TEST(VirtualShell, FailsOneActionWithItsReason) {
  const Workload workload = spilling();
  VirtualShell shell(workload.config, workload.costs);
  std::vector<std::string> errors;
  shell.on_completion = [&](const Done& done) {
    if (!done.error.empty()) errors.push_back(done.error);
  };
  shell.submit(JobId(0), workload.jobs[0]);
  for (int i = 0; i < 12; ++i) ASSERT_TRUE(shell.advance());
  shell.fail_next(JobId(0), "broken");
  shell.run();
  EXPECT_EQ(errors, std::vector<std::string>{"broken"});
  EXPECT_EQ(shell.engine().job(JobId(0)).reason, "broken");
  EXPECT_FALSE(shell.advance());
  shell.submit(JobId(1), workload.jobs[0]);  // continues after a failure
  shell.run();
  EXPECT_EQ(shell.engine().job(JobId(1)).end, JobEnd::done);
}

TEST(VirtualShell, SlowsOnlyOpsOfASlowDevice) {
  const ModelSpec model = chain(4);
  const JobShape shape{
      .virtual_nodes = 8, .groups = 8, .lane_groups = {4, 4}, .max_steps = 3, .moments = 2};
  Workload workload;
  workload.config = {.device_budgets = {64_MiB, 64_MiB}, .host_budget = 1_GiB};
  workload.config.policy = make_policy("lrtf");
  JobPlan plan = *plan_job(model, shape, 64_MiB);
  plan.track_devices = {DeviceId(0), DeviceId(1)};
  workload.jobs = {std::make_shared<JobPlan>(std::move(plan))};
  workload.costs.slowdown = {1, 3};
  const Record record(workload);
  const auto seconds = [&]<typename Kind>(int device) {
    double sum = 0;
    for (const Span& span :
         record.all<Kind>([&](const Kind& action) { return action.device == DeviceId(device); })) {
      sum += span.finished_s - span.started_s;
    }
    return sum;
  };
  EXPECT_NEAR(seconds.template operator()<StartOp>(1), 3 * seconds.template operator()<StartOp>(0),
              1e-9);
  EXPECT_NEAR(seconds.template operator()<StartCopy>(1), seconds.template operator()<StartCopy>(0),
              1e-9);
}

TEST(VirtualShell, StartsEachOpOfADeviceInItsTime) {
  Workload workload = spilling();
  workload.costs.op_start_s = {0.25};
  const Record record(workload);
  const auto ops = record.all<StartOp>([](const auto&) { return true; });
  EXPECT_FALSE(ops.empty());
  for (const Span& span : ops) {
    const auto& op = std::get<StartOp>(span.action);
    const Program& program = *workload.jobs[op.job.index()]->programs[op.step_kind];
    EXPECT_NEAR(span.finished_s - span.started_s, program.ops[at(op.op)].cost_s + 0.25, 1e-9);
  }
}

TEST(VirtualShell, RunsCallsBeforeSimultaneousCompletions) {
  const Workload workload = spilling();
  VirtualShell shell(workload.config, workload.costs);
  std::vector<std::string> order;
  shell.on_completion = [&](const Done&) { order.push_back("done"); };
  shell.submit(JobId(0), workload.jobs[0]);
  const double admitted_s = workload.costs.admission_s;
  shell.call_at(admitted_s, [&](VirtualShell& s) {
    EXPECT_EQ(s.now_s(), admitted_s);
    order.push_back("call");
    s.call_at(0, [&](VirtualShell& late) { EXPECT_EQ(late.now_s(), admitted_s); });
  });
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(shell.advance());
  EXPECT_EQ(order, (std::vector<std::string>{"call", "done"}));
  shell.call_at(1e3, [&](VirtualShell&) { order.push_back("last"); });
  shell.run();
  EXPECT_EQ(order.back(), "last");
  EXPECT_EQ(shell.now_s(), 1e3);
}

/// Runs until an op is in flight on the only device; returns the completions from then on.
struct Interrupted {
  explicit Interrupted(const Workload& workload) : shell(workload.config, workload.costs) {
    shell.submit(JobId(0), workload.jobs[0]);
    while (shell.engine().device(DeviceId(0)).running.empty()) shell.advance();
    shell.on_completion = [this](const Done& done) { ends.push_back(done); };
  }
  VirtualShell shell;
  std::vector<Done> ends;
};

TEST(VirtualShell, LosesWorkInFlightOnALostDevice) {
  Workload workload = spilling();
  workload.costs.cancel_s = 1e-4;
  Interrupted run(workload);
  const double lost_s = run.shell.now_s();
  run.shell.lose_device(DeviceId(0));
  run.shell.run();
  int lost = 0;
  for (const Done& done : run.ends) {
    lost += done.lost ? 1 : 0;
    if (done.lost) {
      EXPECT_DOUBLE_EQ(done.finished_s, lost_s + 1e-4);
    }
  }
  EXPECT_GT(lost, 0);
  EXPECT_FALSE(run.shell.engine().all_ended());
  run.shell.add_device(kAmple);
  run.shell.run();
  EXPECT_EQ(run.shell.engine().job(JobId(0)).end, JobEnd::done);
}

TEST(VirtualShell, CompletesNothingOnAHangingDevice) {
  Interrupted run(spilling());
  const double hangs_s = run.shell.now_s();
  run.shell.hang_device(DeviceId(0), 0.5);
  run.shell.run();
  ASSERT_FALSE(run.ends.empty());
  EXPECT_TRUE(run.ends.back().lost);
  for (const Done& done : run.ends) {
    if (done.lost) {
      EXPECT_DOUBLE_EQ(done.finished_s, hangs_s + 0.5);
    }
  }
  EXPECT_EQ(run.shell.engine().device(DeviceId(0)).state, DeviceState::gone);
}

TEST(VirtualShell, SlowsALink) {
  const auto seconds = [](double bytes_per_s) {
    const Workload workload = spilling();
    VirtualShell shell(workload.config, workload.costs);
    shell.submit(JobId(0), workload.jobs[0]);
    shell.set_link(DeviceId(0), bytes_per_s);
    shell.run();
    return shell.now_s();
  };
  EXPECT_GT(seconds(1e6), 2 * seconds(1e8));
  EXPECT_EQ(seconds(0), seconds(1e8)) << "the rate of copies is the limit";
}

}  // namespace
}  // namespace spillway
