#include "tests/support/action_checker.h"

#include <gtest/gtest.h>

#include <functional>

#include "scheduler/virtual_shell.h"
#include "tests/support/random_workload.h"

/// The watcher of the property tests must see what it watches for: engines that were tampered with.
namespace spillway {
namespace {

using testing::ActionChecker;
using testing::make_workload;
using testing::Workload;

/// Number of seeds whose checker has a problem where every action goes through `tamper` first.
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

TEST(ActionChecker, HasNothingAgainstTheEngine) {
  EXPECT_EQ(caught([](Action&) {}), 0);
}

TEST(ActionChecker, SeesOpsThatDoNotWait) {
  EXPECT_GE(caught([](Action& action) {
              if (auto* op = std::get_if<StartOp>(&action)) op->after.clear();
            }),
            18);
}

TEST(ActionChecker, SeesRangesThatOverlap) {
  EXPECT_GE(caught([](Action& action) {
              if (auto* copy = std::get_if<StartCopy>(&action)) copy->device_offset = 0;
            }),
            18);
}

TEST(ActionChecker, SeesBytesOfAnotherBuffer) {
  EXPECT_EQ(caught([](Action& action) {
              auto* op = std::get_if<StartOp>(&action);
              if (op && op->offsets.size() > 1) std::swap(op->offsets.front(), op->offsets.back());
            }),
            20);
}

TEST(ActionChecker, SeesOpsOfAnotherStep) {
  EXPECT_GE(caught([](Action& action) {
              auto* op = std::get_if<StartOp>(&action);
              if (op && op->step > 0) --op->step;
            }),
            18);  // the others have one step only
}

TEST(ActionChecker, SeesOpsThatRunTwice) {
  EXPECT_GE(caught([last = StartOp{}](Action& action) mutable {
              auto* op = std::get_if<StartOp>(&action);
              if (op == nullptr) return;
              if (op->job == last.job && op->step == last.step && op->unit == last.unit)
                op->op = last.op;
              last = *op;
            }),
            15);  // the others have one virtual node a lane only
}

}  // namespace
}  // namespace spillway
