#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "spillway/error.h"
#include "tests/support/check/thrown.h"
#include "tests/support/disk/temporary_folder.h"
#include "tests/support/run/live_trial.h"

/// Population-based training: the worst trials take over the state of the best. early_stopping_test
/// has what holds for all rules.
namespace spillway::testing {
namespace {

constexpr std::int64_t kPopulationRung = 5;

/// Of trials that are compared once.
SessionConfig population(SessionConfig config, std::uint64_t seed = 1) {
  config.early_terminate = {
      .min_iter = kPopulationRung, .type = EarlyTerminateKind::pbt, .interval = 1000, .seed = seed};
  return config;
}

TrialConfig member_with(double learning_rate) {
  TrialConfig trial = trial_of_seed(1);
  trial.name = trial.client_id = std::to_string(learning_rate);
  trial.train.learning_rate = learning_rate;
  return trial;
}

std::vector<TrialConfig> two_trials() { return {member_with(1e-7), member_with(3e-3)}; }

/// Both have the same samples and dropout, so the one that takes over is then a clone of the other.
TEST(Population, TrainsOnAsACloneWithAnotherRate) {
  const auto trials = two_trials();
  const RunResult result = train(population(session_of(1, kAmple)), trials);
  ASSERT_EQ(result.trials[0].changes.size(), 1U);
  const TrainChange& change = result.trials[0].changes[0];
  EXPECT_EQ(change.step, kPopulationRung);
  const double rate = change.values.learning_rate.value();
  EXPECT_TRUE(rate == 3e-3 * 0.8 || rate == 3e-3 * 1.2) << rate;
  EXPECT_TRUE(result.trials[1].changes.empty());
  TrialConfig clone = trials[1];
  clone.client_id = "clone";
  clone.train.changes = {change};
  const RunResult alone = train(session_of(1, kAmple), {clone, trials[0], trials[1]});
  EXPECT_EQ(result.trials[0].weights_xxh3, alone.trials[0].weights_xxh3);
  EXPECT_EQ(result.trials[0].eval_loss, alone.trials[0].eval_loss);
  EXPECT_EQ(result.trials[0].losses[kPopulationRung - 1],
            alone.trials[1].losses[kPopulationRung - 1])
      << "its own";
  EXPECT_EQ(result.trials[0].losses[kPopulationRung], alone.trials[0].losses[kPopulationRung]);
  EXPECT_EQ(result.trials[1].weights_xxh3, alone.trials[2].weights_xxh3);
  EXPECT_NE(result.trials[0].weights_xxh3, alone.trials[1].weights_xxh3);
}

TEST(Population, TellsUsersWhoseStateATrialTakes) {
  Session session(population(session_of(1, kAmple)));
  for (const TrialConfig& trial : two_trials()) session.submit(trial);
  session.run();
  const SessionEvent event = event_of(session, SessionEvent::Kind::set);
  EXPECT_EQ(event.trial, JobId(0));
  EXPECT_EQ(event.step, kPopulationRung);
  EXPECT_EQ(event.reason.find("state of '0.003000', learning_rate 0.00"), 0U) << event.reason;
}

/// As a kill leaves the folder while both trials wait beyond the rung, and with the one that has
/// taken over thrown back to it.
TEST(Population, GoesOnAfterAKill) {
  const TemporaryFolder folder;
  const std::filesystem::path run = folder.path() / "run";
  std::filesystem::create_directory(run);
  const RunResult whole = train(population(session_of(1, kAmple)), two_trials());
  const auto kept = [](const std::filesystem::path& in, std::int64_t until) {
    auto trials = two_trials();
    for (TrialConfig& trial : trials) {
      trial.until = until;
      trial.checkpoint = {.folder = in / trial.client_id};
    }
    return trials;
  };
  {
    Session session(population(session_of(1, kAmple)));
    session.keep_journal(run);
    for (const TrialConfig& trial : kept(run, kPopulationRung + 3)) session.submit(trial);
    session.run();
    copy_run(session, kPopulationRung + 3, run, folder.path() / "copy", 2);
  }
  const std::filesystem::path copy = folder.path() / "copy";
  const std::filesystem::path taken = copy / two_trials()[0].client_id;
  std::vector<std::filesystem::path> generations(std::filesystem::directory_iterator(taken), {});
  std::ranges::sort(generations);
  ASSERT_EQ(generations.size(), 2U) << "at the rung, and where it waits";
  std::filesystem::remove_all(generations[1]);
  Session session(population(session_of(2, kAmple)));
  session.keep_journal(copy);
  for (const TrialConfig& trial : kept(copy, 0)) session.submit(trial);
  EXPECT_EQ(session.result().trials[0].steps, kPopulationRung);
  session.run();
  for (std::size_t t = 0; t < whole.trials.size(); ++t) {
    EXPECT_EQ(session.result().trials[t].weights_xxh3, whole.trials[t].weights_xxh3);
    EXPECT_EQ(session.result().trials[t].rung_losses, whole.trials[t].rung_losses);
    EXPECT_EQ(session.result().trials[t].changes, whole.trials[t].changes);
  }
}

TEST(Population, NeedsOneModelAndOneOptimizer) {
  Session session(population(session_of(1, kAmple)));
  session.submit(member_with(1e-3));
  TrialConfig other = member_with(1e-2);
  other.train.optimizer = OptimizerKind::sgd;
  EXPECT_EQ(std::string(thrown<ConfigError>([&] { session.submit(other); }).what()),
            "sweep.early_terminate.type: is pbt, which needs one model and one optimizer; those of "
            "'0.001000' and '0.010000' differ");
}

TEST(Population, RefusesInvalidQuantiles) {
  for (const double quantile : {0.0, 0.6, -1.0}) {
    SessionConfig config = population(session_of(1, kAmple));
    config.early_terminate->quantile = quantile;
    EXPECT_EQ(thrown<ConfigError>([&] { Session session(config); }).field,
              "sweep.early_terminate.quantile");
  }
}

}  // namespace
}  // namespace spillway::testing
