#include "runs/log/trial_names.h"

#include <gtest/gtest.h>

#include "tests/support/run/made_up_run.h"

namespace spillway::testing {
namespace {

RunLog run_of(int num_trials) {
  RunLog run;
  run.apply(made_up_run_event(num_trials));
  return run;
}

TEST(TrialNames, AreNumbersAsWideAsTheCount) {
  EXPECT_EQ(short_name(run_of(1), 0), "trial 0");
  EXPECT_EQ(short_name(run_of(2), 1), "t1");
  EXPECT_EQ(short_name(run_of(9), 8), "t8");
  EXPECT_EQ(short_name(run_of(10), 3), "t03");
  EXPECT_EQ(short_name(run_of(100), 3), "t003");
}

TEST(TrialNames, FindATrialByBothNames) {
  RunLog run = run_of(10);
  EXPECT_EQ(trial_named(run, "t03"), 3u);
  EXPECT_EQ(trial_named(run, "trial 3"), 3u);
  EXPECT_EQ(trial_named(run, "t3"), std::nullopt);
  EXPECT_EQ(trial_named(run, "t10"), std::nullopt);
  run.trials[7].result.name = "t03";  // the long name is the identity
  EXPECT_EQ(trial_named(run, "t03"), 7u);
}

TEST(TrialNames, TakeTheLastPartOfAKeyUnlessTwoAreAlike) {
  RunLog run = run_of(2);
  run.trials[0].parameters = {{"train.learning_rate", "0.0037255056"},
                              {"model.dropout", "0.1"},
                              {"data.dropout", "digits"}};
  run.trials[1].parameters = {{"seed", "7"}};
  const auto keys = swept_keys(run);
  EXPECT_EQ(parameter_titles(keys),
            (std::vector<std::string>{"learning_rate", "model.dropout", "data.dropout", "seed"}));
  EXPECT_EQ(short_parameters(run.trials[0], keys),
            (std::vector<std::string>{"0.003726", "0.1", "digits", "-"}));
  EXPECT_EQ(short_parameters(run.trials[1], keys), (std::vector<std::string>{"-", "-", "-", "7"}));
}

}  // namespace
}  // namespace spillway::testing
