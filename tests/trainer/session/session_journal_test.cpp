#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "spillway/error.h"
#include "spillway/session.h"
#include "tests/support/check/thrown.h"
#include "tests/support/disk/temporary_folder.h"
#include "tests/support/run/training_run.h"
#include "tests/support/run/watched_session.h"
#include "trainer/journal/journal.h"

/// A trial that a client submits twice is one trial, within a session and in later ones.
namespace spillway::testing {
namespace {

TrialConfig trial_of(const std::string& client_id, std::uint64_t seed = 1) {
  TrialConfig trial = tiny_trial();
  trial.client_id = client_id;
  trial.name = "trial " + client_id;
  trial.train.seed = seed;
  return trial;
}

std::vector<SessionEvent> steps_of(const Session& session) {
  auto events = session.poll(0, 0);
  std::erase_if(events, [](const auto& e) { return e.kind != SessionEvent::Kind::step; });
  return events;
}

TEST(TrialState, IsFoundByName) {
  EXPECT_EQ(value_named<TrialState>("stopped early"), TrialState::stopped_early);
  EXPECT_EQ(value_named<TrialState>("?"), std::nullopt);
  EXPECT_EQ(value_named<TrialState>(""), std::nullopt);
}

TEST(SessionJournal, ReturnsTheTrialOfAKnownId) {
  Session session(session_of(1, kAmple));
  const JobId a = session.submit(trial_of("a"));
  const JobId b = session.submit(trial_of("b", 2));
  EXPECT_EQ(session.submit(trial_of("a")), a);
  EXPECT_EQ(session.submit(trial_of("b", 2)), b);
  EXPECT_EQ(session.result().trials.size(), 2u);
  const auto text = thrown<ConfigError>([&] { session.submit(trial_of("a", 2)); }).what();
  EXPECT_NE(std::string(text).find("train.seed: was 1, is 2"), std::string::npos) << text;
  // Without ids, equal trials are separate.
  EXPECT_NE(session.submit(trial_of("")), session.submit(trial_of("")));
}

TEST(SessionJournal, DoesNotRepeatAnEndedTrial) {
  const TemporaryFolder folder;
  TrialResult first;
  {
    Session session(session_of(1, kAmple));
    session.keep_journal(folder.path());
    session.submit(trial_of("a"));
    session.run();
    first = session.result().trials[0];
    ASSERT_EQ(first.state, TrialState::done);
  }
  Session session(session_of(1, kAmple));
  session.keep_journal(folder.path());
  const JobId known = session.submit(trial_of("a"));
  EXPECT_EQ(session.submit(trial_of("a")), known);
  const JobId fresh = session.submit(trial_of("b", 2));
  session.simulate();
  session.run();
  const auto result = session.result();
  const TrialResult& again = result.trials[known.index()];
  EXPECT_EQ(again.state, TrialState::done);
  EXPECT_EQ(again.name, first.name);
  EXPECT_EQ(again.steps, first.steps);
  EXPECT_EQ(again.final_loss, first.final_loss);
  EXPECT_EQ(again.eval_loss, first.eval_loss);
  EXPECT_EQ(again.weights_xxh3, first.weights_xxh3);
  EXPECT_EQ(result.trials[fresh.index()].state, TrialState::done);
  for (const SessionEvent& step : steps_of(session)) EXPECT_EQ(step.trial, fresh);
  const auto journal = session.journal();
  ASSERT_EQ(journal.size(), 2u);
  EXPECT_EQ(journal[0].name, "a");
  EXPECT_EQ(journal[1].weights_xxh3, result.trials[fresh.index()].weights_xxh3);
}

TEST(SessionJournal, ContinuesAnUnfinishedTrialFromItsCheckpoint) {
  const TemporaryFolder folder;
  TrialConfig trial = trial_of("a");
  trial.checkpoint.folder = folder / "a";
  const TrialResult whole = train(session_of(1, kAmple), trial_of("a")).trials[0];
  {
    WatchedSession run(session_of(1, kAmple));
    run.session.keep_journal(folder.path());
    run.submit_in_lockstep(trial);
    run.run([&](const SessionEvent& event) {
      if (event.step >= 10) run.session.stop();
    });
    ASSERT_EQ(run.result.trials[0].state, TrialState::stopped);
  }
  Session session(session_of(2, kAmple));
  session.keep_journal(folder.path());
  session.submit(trial);
  session.run();
  expect_same_bits(whole, session.result().trials[0]);
  EXPECT_GE(steps_of(session).at(0).step, 10);
}

TEST(SessionJournal, StoresNoRefusedTrial) {
  const TemporaryFolder folder;
  Session session(session_of(1, kPage));
  session.keep_journal(folder.path());
  EXPECT_THROW(session.submit(trial_of("a")), DoesNotFit);
  EXPECT_THROW(session.submit(trial_of("")), Error);
  EXPECT_TRUE(session.journal().empty());
  EXPECT_TRUE(session.result().trials.empty());
}

TEST(SessionJournal, RefusesATrialWithoutId) {
  const TemporaryFolder folder;
  Session session(session_of(1, kAmple));
  session.keep_journal(folder.path());
  const auto error = thrown<ConfigError>([&] { session.submit(trial_of("")); });
  EXPECT_NE(std::string(error.what()).find("client_id: is empty"), std::string::npos)
      << error.what();
  EXPECT_TRUE(session.result().trials.empty());
}

TEST(SessionJournal, LocksTheFolder) {
  const TemporaryFolder folder;
  Session session(session_of(1, kAmple));
  session.keep_journal(folder.path());
  Session other(session_of(1, kAmple));
  EXPECT_THROW(other.keep_journal(folder.path()), Error);
}

/// JSON has no such number.
TEST(SessionJournal, KeepsAnEvaluationAtARungThatIsNotFinite) {
  const TemporaryFolder folder;
  {
    Journal journal(folder.path() / "journal.sqlite");
    journal.submit("a", "{}");
    journal.set_result("a", R"({"parameters":1,"num_shards":1,"virtual_nodes":1,"lanes":1,
        "order":"vn_major","steps":6,"first_loss":1,"final_loss":1,"eval_loss":null,
        "tokens_per_s":1,"weights_xxh3":"","training_state_bytes":1,
        "rung_losses":[[3,2.5],[6,null]]})");
    journal.set_state("a", "stopped early");
  }
  Session session(session_of(1, kAmple));
  session.keep_journal(folder.path());
  const auto rungs = session.journal().at(0).rung_losses;
  ASSERT_EQ(rungs.size(), 2u);
  EXPECT_EQ(rungs[0], std::pair(std::int64_t{3}, 2.5));
  EXPECT_EQ(rungs[1].first, 6);
  EXPECT_FALSE(std::isfinite(rungs[1].second));
}

}  // namespace
}  // namespace spillway::testing
