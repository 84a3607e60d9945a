#include "apps/report/report.h"

#include <gtest/gtest.h>

#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "runs/output/ranking.h"
#include "runs/text/table.h"
#include "tests/support/run/made_up_run.h"

namespace spillway::testing {
namespace {

/// Ended trials with these evaluation losses; NaN: it was never evaluated.
RunLog ended(const std::vector<double>& losses) {
  RunLog run;
  run.apply(made_up_run_event(static_cast<int>(losses.size())));
  for (std::size_t t = 0; t < losses.size(); ++t) {
    TrialResult& trial = run.trials[t].result;
    trial.state = TrialState::done;
    trial.steps = 10;
    trial.final_loss = 4;
    if (losses[t] == losses[t]) trial.eval_loss = losses[t];
    trial.weights_xxh3 = "0123456789abcdef0123456789abcdef";
  }
  return run;
}

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::string report(const RunLog& run, std::size_t top = kAllTrials) {
  std::ostringstream out;
  print_report(out, run, "runs/x", top);
  return out.str();
}

using Trials = std::vector<std::size_t>;

TEST(Ranking, PutsTheBestFirstAndTrialsWithoutAValueLast) {
  RunLog run = ended({3, kNone, 1, kInfinity, 2, 1});
  EXPECT_EQ(ranked_trials(run), (Trials{2, 5, 4, 0, 1, 3}));
  EXPECT_EQ(best_trial(run), 2u);
  run.metric.goal = MetricGoal::maximize;
  EXPECT_EQ(ranked_trials(run), (Trials{0, 4, 2, 5, 1, 3}));
  EXPECT_EQ(best_trial(run), 0u);
  run.metric.name = MetricKind::final_loss;
  EXPECT_EQ(ranked_trials(run), (Trials{0, 1, 2, 3, 4, 5}));
}

TEST(Ranking, ChoosesABestTrialWithWeights) {
  RunLog run = ended({1, 2, 3});
  run.trials[0].result.weights_xxh3.clear();  // still running
  run.trials[1].result.state = TrialState::stopped_early;
  EXPECT_EQ(best_trial(run), 1u);
  for (auto& trial : run.trials) trial.result.eval_loss.reset();
  EXPECT_EQ(best_trial(run), std::nullopt);
}

TEST(Report, SortsTrialsAndNamesTheFolderOfTheBest) {
  const RunLog run = ended({3, 1, 2});
  const std::string text = report(run);
  EXPECT_LT(text.find("\n  t1 "), text.find("\n  t2 "));
  EXPECT_LT(text.find("\n  t2 "), text.find("\n  t0 "));
  EXPECT_NE(text.find("Best trial: t1 (eval_loss 1.0000), in runs/x/trials/trial 1\n"),
            std::string::npos)
      << text;
  const std::string top = report(run, 2);
  EXPECT_EQ(top.find("\n  t0 "), std::string::npos) << top;
  EXPECT_NE(top.find("  and 1 more\n"), std::string::npos) << top;
}

TEST(Report, FitsATerminal) {
  RunLog run = ended({3, 1, 2});
  run.actual = made_up_totals();
  for (const int width : {20, 40, 80, 120}) {
    std::ostringstream out;
    set_table_width(out, static_cast<std::size_t>(width));
    print_report(out, run, "x");
    std::istringstream text(out.str());
    for (std::string line; std::getline(text, line);) {
      if (!line.starts_with("  t")) continue;
      EXPECT_LE(line.size(), static_cast<std::size_t>(width)) << line;
    }
    EXPECT_NE(out.str().find("1.0000"), std::string::npos) << "the metric stays\n" << out.str();
  }
}

TEST(Report, ListsOnlyOutputsThatExist) {
  RunLog run = ended({3, 1});
  run.actual = made_up_totals();
  EXPECT_NE(report(run).find("trials/NAME: metrics.csv, weights.safetensors\n"), std::string::npos);
  for (auto& trial : run.trials) trial.result.weights_xxh3.clear();
  run.trials[0].saved = {.generation = 1, .step = 4};
  EXPECT_NE(report(run).find("trials/NAME: metrics.csv, checkpoints\n"), std::string::npos)
      << report(run);
}

TEST(Report, HasSweptValuesMetricAndBestInItsDocument) {
  RunLog run = ended({3, 1, kNone});
  run.trials[1].parameters = {
      {"train.learning_rate", "1e-3"}, {"model.bias", "true"}, {"data.path", "a.txt"}};
  const Json json = Json::parse(json_report(run, "runs/x", RunState::ended));
  EXPECT_EQ(json["metric"], (Json{{"name", "eval_loss"}, {"goal", "minimize"}}));
  EXPECT_EQ(json["best"],
            (Json{{"name", "trial 1"}, {"folder", "runs/x/trials/trial 1"}, {"value", 1.0}}));
  EXPECT_EQ(json["trials"][1]["sweep"],
            (Json{{"train.learning_rate", 0.001}, {"model.bias", true}, {"data.path", "a.txt"}}));
  EXPECT_EQ(json["trials"][1]["metric"], 1.0);
  EXPECT_EQ(json["trials"][1]["short_name"], "t1");
  EXPECT_TRUE(json["trials"][2]["metric"].is_null());
  EXPECT_EQ(json["trials"][0]["name"], "trial 0");  // in order of the log
  const Json top = Json::parse(json_report(run, "runs/x", RunState::ended, 1));
  ASSERT_EQ(top["trials"].size(), 1u);
  EXPECT_EQ(top["trials"][0]["name"], "trial 1");
}

}  // namespace
}  // namespace spillway::testing
