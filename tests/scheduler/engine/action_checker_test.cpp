#include "tests/support/check/action_checker.h"

#include <gtest/gtest.h>

#include <functional>

#include "scheduler/simulation/virtual_shell.h"
#include "tests/support/random/from_environment.h"
#include "tests/support/random/random_workload.h"
#include "tests/support/run/elastic_run.h"

/// The checker must detect tampered engines.
namespace spillway {
namespace {

using testing::ActionChecker;
using testing::ElasticRun;
using testing::ElasticWorkload;
using testing::kSanitized;
using testing::make_workload;
using testing::RandomElasticWorkload;
using testing::Workload;

/// The number of seeds whose checker reports a problem if every action passes through `tamper`.
int caught(const std::function<void(Action&)>& tamper) {
  int num_caught = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const Workload workload = make_workload(seed);
    VirtualShell shell(workload.config, workload.costs);
    ActionChecker checker;
    shell.on_action = [&](const Action& original) {
      Action action = original;
      tamper(action);
      checker.on_action(action);
    };
    shell.on_completion = [&](const Done& done) { checker.on_completion(done); };
    for (std::size_t j = 0; j < workload.jobs.size(); ++j) {
      checker.submit(JobId(j), workload.jobs[j]);
      shell.submit(JobId(j), workload.jobs[j]);
    }
    shell.run();
    num_caught += checker.problems().empty() ? 0 : 1;
  }
  return num_caught;
}

TEST(ActionChecker, AcceptsTheEngine) {
  EXPECT_EQ(caught([](Action&) {}), 0);
}

TEST(ActionChecker, DetectsOpsThatDoNotWait) {
  EXPECT_GE(caught([](Action& action) {
              if (auto* op = std::get_if<StartOp>(&action)) op->after.clear();
            }),
            18);
}

TEST(ActionChecker, DetectsOverlappingRanges) {
  EXPECT_GE(caught([](Action& action) {
              if (auto* copy = std::get_if<StartCopy>(&action)) copy->device_offset = 0;
            }),
            18);
}

TEST(ActionChecker, DetectsBytesOfAnotherBuffer) {
  EXPECT_EQ(caught([](Action& action) {
              auto* op = std::get_if<StartOp>(&action);
              if (op && op->offsets.size() > 1) std::swap(op->offsets.front(), op->offsets.back());
            }),
            20);
}

TEST(ActionChecker, DetectsOpsOfAnotherStep) {
  EXPECT_GE(caught([](Action& action) {
              auto* op = std::get_if<StartOp>(&action);
              if (op && op->step > 0) --op->step;
            }),
            18);  // the others have only one step
}

TEST(ActionChecker, DetectsRepeatedOps) {
  EXPECT_GE(caught([last = StartOp{}](Action& action) mutable {
              auto* op = std::get_if<StartOp>(&action);
              if (op == nullptr) return;
              if (op->job == last.job && op->step == last.step && op->unit == last.unit)
                op->op = last.op;
              last = *op;
            }),
            15);  // the others have only one virtual node per track
}

constexpr std::uint64_t kElasticSeeds = kSanitized ? 40 : 100;

/// The same for runs whose devices and plans change: the number of seeds with a problem among those
/// in which `tamper` changed something.
struct Caught {
  int seeds = 0, of = 0;
};
using Tamper = std::function<bool(Action&, const Engine&, bool& tampered)>;
Caught caught_elastic(const Tamper& tamper) {
  Caught caught;
  for (std::uint64_t seed = 1; seed <= kElasticSeeds; ++seed) {
    const ElasticWorkload workload = RandomElasticWorkload(seed).make();
    ElasticRun run(workload);
    bool tampered = false;
    run.tamper = [&](Action& action) { return tamper(action, run.engine(), tampered); };
    run.run();
    if (!tampered) continue;
    ++caught.of;
    if (!run.checker.problems().empty()) ++caught.seeds;
  }
  return caught;
}

/// At least nine of ten, and not zero.
void expect_caught(const Caught& caught) {
  EXPECT_GT(caught.of, kSanitized ? 0 : 5);
  EXPECT_GE(10 * caught.seeds, 9 * caught.of) << caught.seeds << " of " << caught.of;
}

TEST(ActionChecker, AcceptsChangingDevicesAndPlans) {
  const Caught caught =
      caught_elastic([](Action&, const Engine&, bool& tampered) { return tampered = true; });
  EXPECT_EQ(caught.of, static_cast<int>(kElasticSeeds));
  EXPECT_EQ(caught.seeds, 0);
}

TEST(ActionChecker, DetectsOpsOfADroppedAttempt) {
  expect_caught(caught_elastic([](Action& action, const Engine&, bool& tampered) {
    auto* op = std::get_if<StartOp>(&action);
    if (op && op->attempt > 0) --op->attempt, tampered = true;
    return true;
  }));
}

/// All seeds except those whose attempt had not started anything.
TEST(ActionChecker, DetectsAStepRepeatedWithoutALoss) {
  expect_caught(caught_elastic([](Action& action, const Engine&, bool& tampered) {
    if (!std::holds_alternative<StepRedone>(action)) return true;
    tampered = true;
    return false;
  }));
}

TEST(ActionChecker, DetectsReadsOfLostData) {
  expect_caught(caught_elastic([](Action& action, const Engine&, bool& tampered) {
    const auto* op = std::get_if<StartOp>(&action);  // the engine is not told of this loss
    if (!op || op->step == 0 || tampered) return true;
    action = DeviceLeft{op->device, true};
    return tampered = true;
  }));
}

TEST(ActionChecker, DetectsActionsOnARemovedDevice) {
  expect_caught(caught_elastic([](Action& action, const Engine& engine, bool& tampered) {
    auto* op = std::get_if<StartOp>(&action);
    for (std::size_t d = 0; op && d < engine.num_devices(); ++d) {
      if (engine.device(DeviceId(d)).state != DeviceState::gone) continue;
      op->device = DeviceId(d);
      tampered = true;
    }
    return true;
  }));
}

TEST(ActionChecker, DetectsGraphsThatWereNotKept) {
  expect_caught(caught_elastic([](Action& action, const Engine& engine, bool& tampered) {
    auto* op = std::get_if<StartOp>(&action);
    if (!op || op->has_graph) return true;
    const OpSpec& spec = engine.job(op->job).plan->programs[op->step_kind]->ops[at(op->op)];
    op->has_graph = spec.kind == OpKind::backward && spec.graph >= 0;
    tampered |= op->has_graph;
    return true;
  }));
}

TEST(ActionChecker, DetectsGraphsThatStay) {
  expect_caught(caught_elastic([](Action& action, const Engine&, bool& tampered) {
    if (!std::holds_alternative<DropGraph>(action)) return true;
    tampered = true;
    return false;
  }));
}

TEST(ActionChecker, DetectsAMissingOp) {
  expect_caught(caught_elastic([](Action& action, const Engine&, bool& tampered) {
    const bool hidden = !tampered && std::holds_alternative<StartOp>(action);
    tampered |= hidden;
    return !hidden;
  }));
}

TEST(ActionChecker, DetectsPlansWithOtherHomes) {
  const Caught caught = caught_elastic([](Action& action, const Engine&, bool& tampered) {
    auto* changed = std::get_if<PlanChanged>(&action);
    if (!changed) return true;
    auto other = std::make_shared<JobPlan>(*changed->plan);
    other->layout.moments_home += kPage;
    changed->plan = other;
    return tampered = true;
  });
  EXPECT_GT(caught.of, kSanitized ? 0 : 5);
  EXPECT_EQ(caught.seeds, caught.of);
}

}  // namespace
}  // namespace spillway
