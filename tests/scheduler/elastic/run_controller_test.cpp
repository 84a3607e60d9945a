#include "scheduler/elastic/run_controller.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/elastic/allocator.h"

namespace spillway {
namespace {

constexpr std::int64_t kLongest = 100;
using Texts = std::vector<std::string>;

std::string number(JobId job) { return std::to_string(job.value); }
std::string text_of(const PauseJob& c) { return "pause " + number(c.job); }
std::string text_of(const ResumeJob& c) { return "resume " + number(c.job); }
std::string text_of(const ResizeJob& c) {
  return "resize " + number(c.job) + " to " + std::to_string(c.lanes);
}
std::string text_of(const HoldJob& c) {
  const bool has_next = c.hold.step != kNoStep;
  return "hold " + number(c.job) + " at " + (has_next ? std::to_string(c.hold.step) : "its end");
}
std::string text_of(const SuspendJob& c) {
  return (c.suspended ? "suspend " : "let go ") + number(c.job);
}
std::string text_of(const TakeState& c) {
  return number(c.job) + " takes from " + number(c.from) + " at " + std::to_string(c.rung);
}
std::string text_of(const PassRung& c) { return "pass " + number(c.job); }
std::string text_of(const StopAtRung& c) { return "stop " + number(c.job); }

LaneDemand demand_of(JobId job) {
  return {
      .job = job, .lanes = 1, .most_lanes = 4, .sizes = useful_lanes(8, 4), .max_steps = kLongest};
}

/// Jobs with rungs at steps 5, 10, 20, ...
EarlyStopping rungs_for(std::size_t num_jobs) {
  EarlyStopping rule({.rungs = {5, 2}});
  for (std::size_t j = 0; j < num_jobs; ++j) rule.enter(JobId(j), 0, kLongest);
  return rule;
}

/// A controller and a clock. Commands count as carried out.
class ControlledJobs {
 public:
  ControlledJobs(const char* allocator, int num_devices, std::optional<EarlyStopping> stopping = {})
      : controller({make_allocator(allocator), num_devices}, std::move(stopping)) {}

  void admit(JobId job) { controller.on_admitted(demand_of(job), now_s); }
  void admit(std::size_t num_jobs) {
    for (std::size_t j = 0; j < num_jobs; ++j) admit(JobId(j));
  }
  Texts commit(JobId job, std::int64_t step, double loss = 1) {
    now_s += 1;
    controller.on_committed({job, step, {}}, now_s);
    if (step >= controller.start(job).hold.step) {
      controller.on_rested({job, step}, loss, now_s, commands);
    }
    return take();
  }
  Texts end(JobId job) {
    controller.on_ended(job, now_s, commands);
    return take();
  }
  Texts begin() {
    controller.begin(now_s, commands);
    return take();
  }
  Texts decide() {
    controller.decide(commands);
    for (const RunCommand& command : commands) {
      if (std::holds_alternative<ResizeJob>(command)) controller.on_resized(job_of(command));
    }
    return take();
  }
  Texts take() {
    Texts texts;
    for (const RunCommand& command : std::exchange(commands, {})) {
      texts.push_back(std::visit([](const auto& c) { return text_of(c); }, command));
    }
    return texts;
  }

  RunController controller;
  RunCommands commands;
  double now_s = 0;
};

TEST(RunController, StartsJobsWithTheLanesOfOneDecision) {
  ControlledJobs run("wfs", 4);
  EXPECT_TRUE(run.controller.start(JobId(0)).paused);
  EXPECT_EQ(run.controller.start(JobId(0)).hold.step, kNoStep);
  run.admit(2);
  EXPECT_TRUE(run.controller.is_due());
  EXPECT_EQ(run.controller.waits(JobId(0)), JobWait::decision);
  EXPECT_EQ(run.decide(), (Texts{"resize 0 to 2", "resume 0", "resize 1 to 2", "resume 1"}));
  EXPECT_EQ(run.controller.waits(JobId(0)), JobWait::nothing);
  EXPECT_EQ(run.end(JobId(1)), Texts{});
  EXPECT_EQ(run.decide(), Texts{"resize 0 to 4"}) << "it runs, so it is not resumed";
}

TEST(RunController, RunsJobsFromTheirAdmissionWithoutShares) {
  ControlledJobs run("none", 2);
  EXPECT_FALSE(run.controller.start(JobId(0)).paused);
  EXPECT_FALSE(run.controller.is_admitted(JobId(0)));
  run.admit(1);
  EXPECT_TRUE(run.controller.is_admitted(JobId(0)));
  EXPECT_EQ(run.controller.waits(JobId(0)), JobWait::nothing);
  EXPECT_EQ(run.decide(), Texts{});
}

TEST(RunController, LetsAJobWithoutAShareWaitForDevices) {
  ControlledJobs run("priority", 4);
  run.admit(2);
  EXPECT_EQ(run.decide(), (Texts{"resize 0 to 4", "resume 0", "pause 1"}));
  EXPECT_EQ(run.controller.waits(JobId(1)), JobWait::devices);
  run.end(JobId(0));
  EXPECT_EQ(run.decide(), (Texts{"resize 1 to 4", "resume 1"}));
}

TEST(RunController, ContinuesTheBestAtARungAndStopsOthers) {
  ControlledJobs run("none", 1, rungs_for(2));
  run.admit(2);
  EXPECT_EQ(run.begin(), Texts{});
  EXPECT_EQ(run.controller.start(JobId(0)).hold.step, 5);
  EXPECT_EQ(run.commit(JobId(0), 4), Texts{});
  EXPECT_EQ(run.commit(JobId(0), 5, 2), Texts{});
  EXPECT_EQ(run.controller.waits(JobId(0)), JobWait::rung);
  EXPECT_EQ(run.commit(JobId(1), 5, 1), (Texts{"pass 1", "hold 1 at 10", "stop 0"}));
  EXPECT_EQ(run.controller.waits(JobId(1)), JobWait::nothing);
  EXPECT_EQ(run.controller.waits(JobId(0)), JobWait::nothing);
  EXPECT_EQ(run.end(JobId(0)), Texts{});
}

/// One that ends elsewhere counts no more.
TEST(RunController, DecidesARungAtTheEndOfTheLastJob) {
  ControlledJobs run("none", 1, rungs_for(2));
  run.admit(2);
  run.commit(JobId(0), 5);
  EXPECT_EQ(run.end(JobId(1)), (Texts{"pass 0", "hold 0 at 10"}));
}

TEST(RunController, GivesTheShareOfAJobThatWaitsAtARungToOthers) {
  ControlledJobs run("wfs", 2, rungs_for(2));
  run.admit(2);
  EXPECT_EQ(run.decide(), (Texts{"resize 0 to 1", "resume 0", "resize 1 to 1", "resume 1"}));
  EXPECT_EQ(run.commit(JobId(0), 5, 1), Texts{"pause 0"});
  EXPECT_EQ(run.controller.waits(JobId(0)), JobWait::rung);
  EXPECT_EQ(run.decide(), Texts{"resize 1 to 2"});
  EXPECT_EQ(run.commit(JobId(1), 5, 2), (Texts{"pause 1", "pass 0", "hold 0 at 10", "stop 1"}));
  EXPECT_EQ(run.controller.waits(JobId(0)), JobWait::decision);
  run.end(JobId(1));
  EXPECT_EQ(run.decide(), (Texts{"resize 0 to 2", "resume 0"}));
}

/// What a session before has decided holds in this one, too.
TEST(RunController, DecidesKnownRungsAtTheBeginning) {
  EarlyStopping rule({.rungs = {5, 2}});
  rule.enter(JobId(0), 5, kLongest);
  rule.enter(JobId(1), 5, kLongest);
  rule.reach(JobId(0), 5, 2);
  rule.reach(JobId(1), 5, 1);
  ControlledJobs run("wfs", 2, rule);
  run.admit(JobId(0));
  EXPECT_EQ(run.controller.waits(JobId(0)), JobWait::rung);
  EXPECT_EQ(run.decide(), Texts{}) << "one that waits has no share";
  EXPECT_EQ(run.begin(), (Texts{"pass 1", "hold 1 at 10", "stop 0"}));
  run.end(JobId(0));
  run.admit(JobId(1));
  EXPECT_EQ(run.decide(), (Texts{"resize 1 to 2", "resume 1"}));
}

/// The state of the first is taken before it goes on.
TEST(RunController, TakesStatesBeforeAnybodyGoesOn) {
  const EarlyStopping rule({.kind = EarlyTerminateKind::pbt, .rungs = {5, 2, 5}, .quantile = 0.5});
  ControlledJobs run("none", 2, rule);
  for (const JobId job : {JobId(0), JobId(1)}) {
    run.controller.enter({.job = job, .max_steps = kLongest});
  }
  run.admit(2);
  EXPECT_EQ(run.commit(JobId(0), 5, 1), Texts{});
  EXPECT_EQ(run.commit(JobId(1), 5, 2),
            (Texts{"1 takes from 0 at 5", "pass 0", "hold 0 at 10", "pass 1", "hold 1 at 10"}));
}

/// What it reports there again is the loss of the other state.
TEST(RunController, PassesTheRungWhereAJobHasTakenAState) {
  const EarlyStopping rule({.kind = EarlyTerminateKind::pbt, .rungs = {5, 2, 5}, .quantile = 0.5});
  ControlledJobs run("none", 2, rule);
  run.controller.enter(
      {.job = JobId(0), .first_step = 5, .max_steps = kLongest, .rung_losses = {{5, 1}}});
  run.controller.enter({.job = JobId(1),
                        .first_step = 5,
                        .max_steps = kLongest,
                        .rung_losses = {{5, 2}},
                        .has_taken = true});
  EXPECT_EQ(run.controller.start(JobId(0)).hold.step, 5) << "it rests there first";
  EXPECT_EQ(run.controller.start(JobId(1)).hold.step, 10);
  run.admit(2);
  EXPECT_EQ(run.begin(), Texts{});
  EXPECT_EQ(run.commit(JobId(0), 5, 1), (Texts{"pass 0", "hold 0 at 10"}));
}

TEST(RunController, EvaluatesAJobAtARungWhereEvaluationsAreCompared) {
  for (const MetricKind metric : {MetricKind::eval_loss, MetricKind::final_loss}) {
    EarlyStopping rule({.rungs = {5, 2}, .metric = to_string(metric)});
    ControlledJobs run("none", 1, rule);
    run.controller.enter({.job = JobId(0), .max_steps = kLongest});
    run.controller.enter({.job = JobId(1), .max_steps = kLongest, .until = 5});
    const bool evaluates = metric == MetricKind::eval_loss;
    EXPECT_EQ(run.controller.start(JobId(0)).hold.evaluate, evaluates);
    EXPECT_TRUE(run.controller.start(JobId(1)).hold.evaluate) << "the user looks at it";
  }
}

/// Jobs of which one trains at once.
EarlyStopping one_at_once() {
  return EarlyStopping(
      {.kind = EarlyTerminateKind::asha, .rungs = {.min_iter = 5, .eta = 2}, .most_at_once = 1});
}

TEST(RunController, LetsAJobWithoutAShareWaitToBegin) {
  ControlledJobs run("wfs", 2, one_at_once());
  for (const JobId job : {JobId(0), JobId(1)}) {
    run.controller.enter({.job = job, .max_steps = kLongest});
  }
  const JobStart second = run.controller.start(JobId(1));
  EXPECT_EQ(second.hold.step, 0);
  EXPECT_FALSE(second.hold.evaluate) << "it is compared with nobody there";
  run.admit(2);
  EXPECT_EQ(run.controller.waits(JobId(1)), JobWait::rung);
  EXPECT_EQ(run.decide(), (Texts{"resize 0 to 2", "resume 0"}));
  run.controller.on_rested({JobId(1), 0}, 0, run.now_s, run.commands);
  EXPECT_EQ(run.take(), Texts{});
  EXPECT_EQ(run.end(JobId(0)), Texts{"hold 1 at 5"});
  EXPECT_EQ(run.controller.waits(JobId(1)), JobWait::decision);
  EXPECT_EQ(run.decide(), (Texts{"resize 1 to 2", "resume 1"}));
}

TEST(RunController, StartsAJobThatIsNotComparedAtOnce) {
  ControlledJobs run("wfs", 2, one_at_once());
  run.controller.enter({.job = JobId(0), .max_steps = kLongest});
  run.controller.enter({.job = JobId(1), .max_steps = kLongest, .is_compared = false});
  EXPECT_EQ(run.controller.start(JobId(1)).hold.step, kNoStep);
  run.admit(2);
  EXPECT_EQ(run.controller.waits(JobId(1)), JobWait::decision);
  EXPECT_FALSE(run.controller.is_rung(JobId(1), 5));
  EXPECT_EQ(run.end(JobId(1)), Texts{});
}

/// Its evaluation there was lost with the session before.
TEST(RunController, EvaluatesAJobThatBeginsAtItsRung) {
  for (const char* allocator : {"none", "wfs"}) {
    ControlledJobs run(allocator, 1, one_at_once());
    run.controller.enter({.job = JobId(0), .max_steps = 5});
    run.controller.enter({.job = JobId(1), .first_step = 5, .max_steps = kLongest});
    run.admit(JobId(0));
    LaneDemand second = demand_of(JobId(1));
    second.first_step = 5;
    run.controller.on_admitted(second, run.now_s);
    run.decide();
    run.controller.on_rested({JobId(1), 5}, 0, run.now_s, run.commands);
    EXPECT_EQ(run.end(JobId(0)), Texts{"hold 1 at 5"});
    run.decide();
    EXPECT_EQ(run.controller.waits(JobId(1)), JobWait::nothing) << "it has the device";
    EXPECT_TRUE(run.controller.start(JobId(1)).hold.evaluate);
    run.controller.on_rested({JobId(1), 5}, 1, run.now_s, run.commands);
    Texts texts = run.take();
    EXPECT_EQ((Texts{texts.end() - 2, texts.end()}), (Texts{"pass 1", "hold 1 at 10"}))
        << allocator;
  }
}

/// Else it would be among the jobs that share devices twice.
TEST(RunController, CountsAJobThatPassesARungBeforeItsAdmissionOnce) {
  EarlyStopping rule({.rungs = {5, 2}});
  for (int j = 0; j < 4; ++j) {
    rule.enter(JobId(j), 5, kLongest);
    rule.reach(JobId(j), 5, j);
  }
  ControlledJobs run("wfs", 2, rule);
  EXPECT_EQ(run.begin(),
            (Texts{"pass 0", "hold 0 at 10", "pass 1", "hold 1 at 10", "stop 2", "stop 3"}));
  EXPECT_FALSE(run.controller.is_due());
  run.admit(2);
  EXPECT_EQ(run.decide(), (Texts{"resize 0 to 1", "resume 0", "resize 1 to 1", "resume 1"}));
  run.end(JobId(0));
  EXPECT_EQ(run.decide(), Texts{"resize 1 to 2"});
}

TEST(RunController, KeepsALimitAndRequestedLanesAfterARung) {
  ControlledJobs run("wfs", 4, rungs_for(3));
  run.admit(3);
  run.decide();
  run.commit(JobId(0), 5, 1);
  run.commit(JobId(1), 5, 2);
  run.controller.fix(JobId(0), 3);
  run.controller.limit(JobId(0), 2);  // of one that keeps what was asked for: no effect
  EXPECT_EQ(run.decide(), Texts{"resize 2 to 4"});
  EXPECT_EQ(run.commit(JobId(2), 5, 3),
            (Texts{"pause 2", "pass 0", "hold 0 at 10", "stop 1", "stop 2"}));
  EXPECT_EQ(run.decide(), (Texts{"resize 0 to 3", "resume 0"}));
}

TEST(RunController, DecidesNoRungWhileTheUserStopsAllJobs) {
  ControlledJobs run("none", 1, rungs_for(0));
  const auto enter = [&](JobId job) {
    run.controller.enter({.job = job, .max_steps = kLongest});
    run.admit(job);
  };
  enter(JobId(0));
  enter(JobId(1));
  run.commit(JobId(0), 5);
  run.controller.stop();
  EXPECT_EQ(run.end(JobId(1)), Texts{});
  EXPECT_EQ(run.controller.waits(JobId(0)), JobWait::rung);
  EXPECT_EQ(run.end(JobId(0)), Texts{});
  enter(JobId(2));
  EXPECT_EQ(run.commit(JobId(2), 5), (Texts{"pass 2", "hold 2 at 10"})) << "it came afterwards";
}

/// A controller with one admitted job that waits at step 5.
ControlledJobs until_5(const char* allocator) {
  ControlledJobs run(allocator, 2);
  run.controller.enter({.job = JobId(0), .max_steps = kLongest, .until = 5});
  EXPECT_EQ(run.controller.start(JobId(0)).hold.step, 5);
  run.admit(1);
  run.decide();
  return run;
}

TEST(RunController, HoldsAJobAtItsStepUntilItIsExtended) {
  ControlledJobs run = until_5("none");
  EXPECT_EQ(run.commit(JobId(0), 4), Texts{});
  EXPECT_EQ(run.controller.waits(JobId(0)), JobWait::nothing);
  EXPECT_EQ(run.commit(JobId(0), 5), Texts{});
  EXPECT_EQ(run.controller.waits(JobId(0)), JobWait::until);
  run.controller.extend(JobId(0), 8, run.now_s, run.commands);
  EXPECT_EQ(run.take(), Texts{"hold 0 at 8"});
  EXPECT_EQ(run.controller.waits(JobId(0)), JobWait::nothing);
  run.controller.extend(JobId(0), kNoStep, run.now_s, run.commands);
  EXPECT_EQ(run.take(), Texts{"hold 0 at its end"});
}

TEST(RunController, GivesTheShareOfAJobThatWaitsAtItsStepToOthers) {
  ControlledJobs run = until_5("wfs");
  run.admit(JobId(1));
  run.decide();
  EXPECT_EQ(run.commit(JobId(0), 5), Texts{"pause 0"});
  EXPECT_EQ(run.decide(), Texts{"resize 1 to 2"});
  run.controller.extend(JobId(0), 8, run.now_s, run.commands);
  EXPECT_EQ(run.take(), Texts{"hold 0 at 8"});
  EXPECT_EQ(run.controller.waits(JobId(0)), JobWait::decision);
  EXPECT_EQ(run.decide(), (Texts{"resize 0 to 1", "resume 0", "resize 1 to 1"}));
}

TEST(RunController, LetsAnExemptJobGoOnFromItsRung) {
  ControlledJobs run("none", 2, rungs_for(3));
  run.admit(3);
  EXPECT_EQ(run.commit(JobId(0), 5, 9), Texts{});
  EXPECT_EQ(run.commit(JobId(1), 5, 1), Texts{});
  EXPECT_EQ(run.controller.waits(JobId(0)), JobWait::rung);
  run.controller.exempt(JobId(0), run.now_s, run.commands);
  EXPECT_EQ(run.take(), Texts{"hold 0 at its end"});
  EXPECT_EQ(run.controller.waits(JobId(0)), JobWait::nothing);
  EXPECT_FALSE(run.controller.is_rung(JobId(0), 10));
  EXPECT_EQ(run.commit(JobId(0), 10, 9), Texts{});
  run.controller.exempt(JobId(0), run.now_s, run.commands);
  EXPECT_EQ(run.take(), Texts{}) << "once";
  EXPECT_EQ(run.commit(JobId(2), 5, 2), (Texts{"pass 1", "hold 1 at 10", "stop 2"}));
  EXPECT_EQ(run.end(JobId(0)), Texts{});
}

TEST(RunController, DecidesTheRungThatAnExemptJobHadToReach) {
  ControlledJobs run("none", 2, rungs_for(3));
  run.admit(3);
  run.commit(JobId(0), 5, 1);
  EXPECT_EQ(run.commit(JobId(1), 5, 2), Texts{});
  run.controller.exempt(JobId(2), run.now_s, run.commands);
  EXPECT_EQ(run.take(), (Texts{"hold 2 at its end", "pass 0", "hold 0 at 10", "stop 1"}));
}

/// The engine reports that the job rests after the user has told it to go on.
TEST(RunController, AppliesACallThatCrossesTheRestOfAJob) {
  for (const char* allocator : {"none", "wfs"}) {
    ControlledJobs run = until_5(allocator);
    run.controller.on_committed({JobId(0), 5, {}}, run.now_s);
    run.controller.extend(JobId(0), 8, run.now_s, run.commands);
    run.controller.on_rested({JobId(0), 5}, 0, run.now_s, run.commands);
    run.take();
    run.decide();
    EXPECT_EQ(run.controller.waits(JobId(0)), JobWait::nothing) << allocator;
  }
}

/// A job that resumes at a rung rests before it evaluates there: it has no loss yet.
TEST(RunController, IsNotComparedBeforeItIsEvaluated) {
  EarlyStopping rule({.kind = EarlyTerminateKind::asha, .rungs = {5, 2}, .most_at_once = 1});
  rule.enter(JobId(0), 5, kLongest);
  ControlledJobs run("none", 2, rule);
  run.admit(JobId(0));
  EXPECT_EQ(run.begin(), Texts{});
  run.controller.on_rested({JobId(0), 5}, std::nullopt, run.now_s, run.commands);
  EXPECT_EQ(run.take(), Texts{});
  EXPECT_EQ(run.controller.waits(JobId(0)), JobWait::nothing) << "it evaluates";
  run.controller.on_rested({JobId(0), 5}, 0.5, run.now_s, run.commands);
  EXPECT_EQ(run.take(), (Texts{"pass 0", "hold 0 at 10"}));
}

TEST(RunController, ResumesASuspendedJobOnlyForTheUser) {
  ControlledJobs run("wfs", 2, rungs_for(2));
  run.admit(2);
  run.decide();
  run.controller.suspend(JobId(0), run.commands);
  EXPECT_EQ(run.take(), Texts{"suspend 0"});
  EXPECT_EQ(run.controller.waits(JobId(0)), JobWait::nothing) << "its step is open";
  run.controller.on_committed({JobId(0), 1, {}}, run.now_s);
  run.controller.on_rested({JobId(0), 1}, 0, run.now_s, run.commands);
  EXPECT_EQ(run.take(), Texts{"pause 0"});
  EXPECT_EQ(run.controller.waits(JobId(0)), JobWait::user);
  EXPECT_EQ(run.decide(), Texts{"resize 1 to 2"});
  EXPECT_EQ(run.commit(JobId(1), 5), Texts{"pause 1"}) << "it waits for the suspended one";
  run.controller.resume(JobId(0), run.now_s, run.commands);
  EXPECT_EQ(run.take(), Texts{"let go 0"});
  EXPECT_EQ(run.decide(), (Texts{"resize 0 to 2", "resume 0"}));
}

/// It may have no device at all before the call.
TEST(RunController, SuspendsAJobWithoutAShareAtOnce) {
  ControlledJobs run("priority", 4);
  run.admit(2);
  run.decide();
  run.controller.suspend(JobId(1), run.commands);
  EXPECT_EQ(run.take(), (Texts{"suspend 1", "pause 1"}));
  EXPECT_EQ(run.controller.waits(JobId(1)), JobWait::user);
  run.end(JobId(0));
  EXPECT_EQ(run.decide(), Texts{});
  run.controller.resume(JobId(1), run.now_s, run.commands);
  run.take();
  EXPECT_EQ(run.decide(), (Texts{"resize 1 to 4", "resume 1"}));
}

TEST(RunController, AcceptsASuspendedJob) {
  ControlledJobs run("none", 1);
  run.controller.enter({.job = JobId(0), .max_steps = kLongest, .suspended = true});
  EXPECT_TRUE(run.controller.start(JobId(0)).suspended);
  EXPECT_EQ(run.controller.waits(JobId(0)), JobWait::user);
  run.admit(1);
  EXPECT_EQ(run.controller.waits(JobId(0)), JobWait::user);
  run.controller.resume(JobId(0), run.now_s, run.commands);
  EXPECT_EQ(run.take(), Texts{"let go 0"});
  EXPECT_EQ(run.controller.waits(JobId(0)), JobWait::nothing);
}

/// It is compared with those that were there, and takes nothing from those that went on.
TEST(RunController, ComparesALateJobAtTheRungsOfTheOthers) {
  for (const double loss : {0.5, 1.5}) {
    ControlledJobs run("none", 1, rungs_for(2));
    run.admit(2);
    run.commit(JobId(0), 5, 2);
    run.commit(JobId(1), 5, 1);
    run.end(JobId(0));
    for (const JobId late : {JobId(2), JobId(3)}) {
      run.controller.enter({.job = late, .max_steps = kLongest});
      run.admit(late);
    }
    EXPECT_EQ(run.commit(JobId(2), 5, loss), Texts{});
    EXPECT_EQ(run.commit(JobId(3), 5, 1), loss < 1 ? (Texts{"pass 2", "hold 2 at 10", "stop 3"})
                                                   : (Texts{"pass 3", "hold 3 at 10", "stop 2"}));
  }
}

TEST(RunController, DecidesNothingWithoutDevices) {
  ControlledJobs run("wfs", 1);
  run.admit(1);
  run.decide();
  run.controller.on_device_left(DeviceId(0));
  run.controller.set_num_devices(0);
  EXPECT_EQ(run.decide(), Texts{});
  EXPECT_EQ(run.controller.waits(JobId(0)), JobWait::nothing);
  run.controller.set_num_devices(2);
  EXPECT_EQ(run.decide(), Texts{"resize 0 to 2"});
}

}  // namespace
}  // namespace spillway
