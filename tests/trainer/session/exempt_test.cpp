#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "spillway/error.h"
#include "tests/support/check/thrown.h"
#include "tests/support/disk/temporary_folder.h"
#include "tests/support/run/live_trial.h"

/// Trials that early stopping compares no more.
namespace spillway::testing {
namespace {

constexpr std::int64_t kRung = 3;

SessionConfig halving() {
  SessionConfig config = session_of(1, kAmple);
  config.early_terminate = {.min_iter = kRung, .eta = 2, .metric = MetricKind::final_loss};
  return config;
}

TrialConfig trial_with(double learning_rate, std::int64_t until = 0) {
  TrialConfig trial = trial_of_seed(1);
  trial.name = trial.client_id = std::to_string(learning_rate);
  trial.train.learning_rate = learning_rate;
  trial.until = until;
  return trial;
}

constexpr double kGood = 3e-3, kBad = 1e-5, kWorst = 1e-7;

TEST(ExemptTrial, GoesOnAtOnce) {
  const RunResult compared = train(halving(), {trial_with(kBad), trial_with(kGood)});
  EXPECT_EQ(compared.trials[0].steps, kRung) << "the control";
  Session session(halving());
  const JobId exempt = session.submit(trial_with(kBad, kRung - 1));
  for (const double rate : {kGood, kWorst}) session.submit(trial_with(rate));
  session.start();
  session.wait();
  EXPECT_EQ(session.result().trials[1].state, TrialState::waiting) << "at its rung";
  session.exempt_from_early_stopping(exempt);
  session.wait();
  EXPECT_EQ(session.result().trials[1].state, TrialState::done);
  EXPECT_NE(session.result().trials[2].reason.find("number 2 of 2"), std::string::npos);
  session.extend(exempt, trial_with(kBad).train.max_steps);
  session.finish();
  const RunResult alone = train(session_of(1, kAmple), trial_with(kBad));
  EXPECT_EQ(session.result().trials[0].weights_xxh3, alone.trials[0].weights_xxh3);
  EXPECT_TRUE(session.result().trials[0].rung_losses.empty());
  session.exempt_from_early_stopping(exempt);  // too late
  EXPECT_THROW(session.exempt_from_early_stopping(JobId(3)), Error);
}

/// What a trial that comes later hears at the rung, and the weights of the exempt one.
std::vector<std::string> later(Session& session, JobId exempt) {
  const JobId late = session.submit(trial_with(kBad));
  session.extend(exempt, trial_with(kGood).train.max_steps);
  session.run();
  const RunResult result = session.result();
  return {result.trials.at(late.index()).reason, result.trials.at(exempt.index()).weights_xxh3};
}

TEST(ExemptTrial, KeepsItsPlaceAfterAKill) {
  const TemporaryFolder folder;
  const std::filesystem::path run = folder.path() / "run", copy = folder.path() / "copy";
  std::filesystem::create_directory(run);
  TrialConfig good = trial_with(kGood, kRung + 1);
  good.checkpoint.folder = run / "good";
  std::vector<std::string> expected;
  {
    Session session(halving());
    session.keep_journal(run);
    const JobId exempt = session.submit(good);
    session.submit(trial_with(kWorst));
    session.run();
    session.exempt_from_early_stopping(exempt);
    copy_run(session, kRung + 1, run, copy);
    expected = later(session, exempt);
  }
  EXPECT_NE(expected[0].find("number 2 of 3"), std::string::npos) << expected[0];
  good.checkpoint = {.folder = copy / "good", .resume = true};
  good.exempt_from_early_stopping = true;
  Session session(halving());
  session.keep_journal(copy);
  const JobId exempt = session.submit(good);
  session.submit(trial_with(kWorst));
  EXPECT_EQ(session.result().trials[0].steps, kRung + 1);
  EXPECT_EQ(later(session, exempt), expected);
}

/// Of which each fits alone.
TEST(CheckedTrials, FitTogether) {
  SessionConfig config = halving();
  Session ample(config);
  ample.start();
  ample.check({trial_with(kGood), trial_with(kBad)});
  EXPECT_TRUE(ample.result().trials.empty());
  const Bytes home = ample.plan(ample.submit(trial_with(kGood))).home_bytes;
  config.host_memory = home + home / 2;
  Session session(config);
  session.start();
  session.check({trial_with(kGood)});
  session.check({trial_with(kBad)});
  EXPECT_THROW(session.check({trial_with(kGood), trial_with(kBad)}), DoesNotFit);
  EXPECT_TRUE(session.result().trials.empty());
  session.check({trial_with(kBad)});
  TrialConfig other = trial_with(kGood);
  session.submit(other);
  other.train.seed = 7;
  EXPECT_EQ(thrown<ConfigError>([&] { session.check({other}); }).field, "client_id");
}

}  // namespace
}  // namespace spillway::testing
