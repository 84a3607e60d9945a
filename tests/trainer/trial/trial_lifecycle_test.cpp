#include "trainer/trial/trial_lifecycle.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <stdexcept>
#include <string_view>

#include "tests/support/check/thrown.h"

namespace spillway::testing {
namespace {

using enum TrialPhase;

constexpr std::array kPhases{submitted,      undecided, running, paused, at_rung, stranded,
                             stopping_early, releasing, done,    failed, stopped, stopped_early};

/// A row for each phase, a column for each phase that may follow, both in the order of kPhases.
constexpr std::array<std::string_view, kPhases.size()> kLegal{
    "xxxxxxxx.xx.",  // submitted
    ".xxxxxxx.xx.",  // undecided
    ".xxxxxxx.xx.",  // running
    ".xxxxxxx.xx.",  // paused
    "xxxxxxxx.xx.",  // at_rung
    "xxxxxxxx.xx.",  // stranded
    ".........xxx",  // stopping_early
    "........xxx.",  // releasing
    "............",  // done
    "............",  // failed
    "............",  // stopped
    "............",  // stopped_early
};

bool in_table(std::size_t from, std::size_t to) { return kLegal[from][to] == 'x'; }

/// A trial that has reached `phase` on a shortest path of legal transitions.
TrialLifecycle trial_in(TrialPhase phase) {
  std::deque<TrialLifecycle> reached(1);
  for (std::size_t i = 0; i < reached.size(); ++i) {
    if (reached[i].phase() == phase) return reached[i];
    for (const TrialPhase next : kPhases) {
      const bool known = std::ranges::count(reached, next, &TrialLifecycle::phase) > 0;
      if (known || !is_legal(reached[i].phase(), next)) continue;
      reached.push_back(reached[i]);
      reached.back().enter(next);
    }
  }
  throw std::logic_error("no path leads there");
}

TEST(TrialLifecycle, EntersOnlyTheLegalPhases) {
  for (std::size_t from = 0; from < kPhases.size(); ++from) {
    for (std::size_t to = 0; to < kPhases.size(); ++to) {
      SCOPED_TRACE(std::string(to_string(kPhases[from])) + " to " + to_string(kPhases[to]));
      TrialLifecycle trial = trial_in(kPhases[from]);
      EXPECT_EQ(is_legal(kPhases[from], kPhases[to]), in_table(from, to));
      if (in_table(from, to)) {
        trial.enter(kPhases[to]);
        EXPECT_EQ(trial.phase(), kPhases[to]);
      } else {
        EXPECT_THROW(trial.enter(kPhases[to]), std::logic_error);
        EXPECT_EQ(trial.phase(), kPhases[from]) << "a refused transition changes nothing";
      }
    }
  }
}

TEST(TrialLifecycle, NamesBothPhasesInARefusal) {
  TrialLifecycle trial = trial_in(stopped_early);
  const auto error = thrown<std::logic_error>([&] { trial.enter(running); });
  EXPECT_STREQ(error.what(), "a trial cannot go from stopped early to running");
}

TEST(TrialLifecycle, KnowsFinalPhases) {
  for (const TrialPhase phase : kPhases) {
    const TrialLifecycle trial = trial_in(phase);
    const bool is_final =
        std::ranges::none_of(kPhases, [&](TrialPhase next) { return is_legal(phase, next); });
    EXPECT_EQ(trial.ended(), is_final) << to_string(phase);
    EXPECT_EQ(trial.is_live(), is_legal(phase, releasing)) << to_string(phase);
  }
}

TEST(TrialLifecycle, ShowsUsersTheFinalState) {
  for (const TrialPhase phase : kPhases) {
    const auto shown = shown_state(phase);
    if (trial_in(phase).ended()) {
      ASSERT_TRUE(shown);
      EXPECT_STREQ(to_string(*shown), to_string(phase));
    } else if (phase == undecided || phase == stopping_early || phase == releasing) {
      EXPECT_FALSE(shown) << to_string(phase);
    } else {
      EXPECT_EQ(shown, phase == running ? TrialState::running : TrialState::waiting);
    }
  }
}

TEST(TrialLifecycle, RecallsOnlyAFinalStateAtTheBeginning) {
  for (const TrialState state : {TrialState::done, TrialState::failed, TrialState::stopped_early}) {
    TrialLifecycle trial;
    trial.recall(state);
    EXPECT_TRUE(trial.ended());
    EXPECT_EQ(shown_state(trial.phase()), state);
    EXPECT_THROW(trial.recall(state), std::logic_error);
  }
  for (const TrialState state : {TrialState::waiting, TrialState::running, TrialState::stopped}) {
    EXPECT_THROW(TrialLifecycle().recall(state), std::logic_error) << to_string(state);
  }
}

}  // namespace
}  // namespace spillway::testing
