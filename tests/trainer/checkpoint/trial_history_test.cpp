#include "trainer/checkpoint/trial_history.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "spillway/error.h"
#include "tests/support/check/thrown.h"

namespace spillway {
namespace {

using Json = nlohmann::json;

constexpr Rungs kRungs{.min_iter = 3, .eta = 2};  // 3, 6, 12, 24
constexpr const char *kMeans = "final_loss", *kEvals = "eval_loss";

Metrics metrics_at(std::int64_t step) { return {{"accuracy", 1 / static_cast<double>(step)}}; }
double loss_of(std::int64_t step) { return std::sqrt(static_cast<double>(100 - step)) / 3; }

void train(TrialHistory& history, std::int64_t end) {
  while (history.num_steps() < end) {
    const std::int64_t step = history.num_steps() + 1;
    history.add_step(loss_of(step), 1 / loss_of(step));
    if (step % 2 == 0) history.add_eval(step, 2 * loss_of(step), metrics_at(step));
  }
}

template <typename Values>
auto list(const Values& values) {
  return std::vector(values.begin(), values.end());
}

template <typename Value>
std::vector<Value> last(const std::vector<Value>& all, std::size_t num) {
  return {all.end() - static_cast<std::ptrdiff_t>(std::min(num, all.size())), all.end()};
}

/// Interrupted every `every` steps.
TrialHistory interrupted(std::size_t limit, std::int64_t every, std::int64_t end) {
  TrialHistory history(limit, kRungs);
  while (history.num_steps() < end) {
    train(history, std::min(end, history.num_steps() + every));
    const bool evaluated = history.num_steps() % 2 == 0;
    history = TrialHistory::parse(history.to_text(), "history.json", limit, kRungs);
    const std::int64_t step = history.num_steps();
    if (evaluated) history.add_eval(step, 2 * loss_of(step), metrics_at(step));
  }
  return history;
}

TEST(TrialHistory, KeepsTheLastStepsAcrossInterruptions) {
  TrialHistory whole(1000, kRungs);
  train(whole, 30);
  ASSERT_EQ(whole.num_dropped(), 0);
  ASSERT_EQ(whole.rung_losses(kMeans).size(), 4u);
  ASSERT_EQ(whole.rung_losses(kEvals),
            (RungLosses{{6, 2 * loss_of(6)}, {12, 2 * loss_of(12)}, {24, 2 * loss_of(24)}}));
  ASSERT_EQ(whole.rung_losses("accuracy"), (RungLosses{{6, 1 / 6.}, {12, 1 / 12.}, {24, 1 / 24.}}));
  for (const std::size_t limit : {1u, 2u, 5u, 29u, 30u}) {
    for (const std::int64_t every : {1, 4, 7, 30}) {
      const TrialHistory some = interrupted(limit, every, 30);
      EXPECT_EQ(some.num_steps(), 30);
      EXPECT_EQ(some.num_dropped(), 30 - static_cast<std::int64_t>(limit));
      EXPECT_EQ(list(some.losses()), last(list(whole.losses()), limit));
      EXPECT_EQ(list(some.gradient_norms()), last(list(whole.gradient_norms()), limit));
      EXPECT_EQ(list(some.eval_losses()), last(list(whole.eval_losses()), limit));
      EXPECT_EQ(some.rung_losses(kMeans), whole.rung_losses(kMeans))
          << "the same bits, limit " << limit;
      EXPECT_EQ(some.rung_losses(kEvals), whole.rung_losses(kEvals));
      EXPECT_EQ(some.rung_losses("accuracy"), whole.rung_losses("accuracy"));
      EXPECT_EQ(list(some.eval_metrics()), last(list(whole.eval_metrics()), limit));
      EXPECT_EQ(some.last_metrics(), whole.last_metrics());
      EXPECT_EQ(some.first_loss(), whole.first_loss());
      EXPECT_EQ(some.last_loss(), whole.last_loss());
      EXPECT_EQ(some.last_eval_loss(), whole.last_eval_loss());
      EXPECT_EQ(some.last_gradient_norm(), whole.last_gradient_norm());
    }
  }
}

/// Negative control: means over kept steps only would differ.
TEST(TrialHistory, DiffersFromMeansOverKeptSteps) {
  TrialHistory whole(1000, kRungs), some(5, kRungs);
  train(whole, 10);
  train(some, 10);
  Json json = Json::parse(some.to_text());
  json["rungs"]["sum"] = 0;
  auto wrong = TrialHistory::parse(json.dump(), "history.json", 5, kRungs);
  train(whole, 12);
  train(some, 12);
  train(wrong, 12);
  EXPECT_EQ(some.rung_losses(kMeans).back(), whole.rung_losses(kMeans).back());
  EXPECT_NE(wrong.rung_losses(kMeans).back(), whole.rung_losses(kMeans).back());
}

TEST(TrialHistory, KeepsItsFormatIfNothingIsDropped) {
  TrialHistory history(10, kRungs);
  history.add_step(4.5, 2);
  history.add_eval(1, 4.25);
  history.add_step(3.5, 1.5);
  history.add_eval(2, std::numeric_limits<double>::infinity());
  EXPECT_EQ(history.to_text(),
            R"({"eval_losses":[[1,4.25]],"gradient_norms":[2.0,1.5],"losses":[4.5,3.5],"step":2})");
}

/// Written by a program that compared means alone.
TEST(TrialHistory, HasNoEvaluationsAtRungsFromAnEarlierProgram) {
  TrialHistory whole(5, kRungs);
  train(whole, 20);
  Json json = Json::parse(whole.to_text());
  json["rungs"].erase("evals");
  const auto read = TrialHistory::parse(json.dump(), "history.json", 5, kRungs);
  EXPECT_EQ(read.rung_losses(kMeans), whole.rung_losses(kMeans));
  EXPECT_EQ(read.rung_losses(kEvals), (RungLosses{{12, 2 * loss_of(12)}})) << "the others are gone";
}

TEST(TrialHistory, KeepsAnEvaluationThatIsNotFinite) {
  TrialHistory whole(2, kRungs);
  train(whole, 2);
  whole.add_step(1, 1);
  whole.add_eval(3, std::numeric_limits<double>::infinity());
  train(whole, 9);
  const auto read = TrialHistory::parse(whole.to_text(), "history.json", 2, kRungs);
  ASSERT_EQ(read.rung_losses(kEvals).size(), 2u);
  EXPECT_FALSE(std::isfinite(read.rung_losses(kEvals)[0].second));
}

/// The state there is that of another trial, so the evaluation cannot be repeated.
TEST(TrialHistory, KeepsItsEvaluationWhereItTakesAState) {
  for (const std::size_t limit : {std::size_t{100}, std::size_t{2}}) {
    TrialHistory history(limit, kRungs);
    train(history, 6);
    const RungLosses all = history.rung_losses(kEvals);
    EXPECT_TRUE(
        TrialHistory::parse(history.to_text(), "", limit, kRungs).rung_losses(kEvals).empty());
    history.take();
    TrialHistory resumed = TrialHistory::parse(history.to_text(), "", limit, kRungs);
    EXPECT_TRUE(resumed.has_taken());
    EXPECT_EQ(resumed.rung_losses(kEvals), all);
    resumed.add_eval(6, 99);
    EXPECT_EQ(resumed.rung_losses(kEvals), all) << "it is of the other trial";
    train(resumed, 7);
    EXPECT_FALSE(resumed.has_taken());
    EXPECT_FALSE(TrialHistory::parse(resumed.to_text(), "", limit, kRungs).has_taken());
  }
}

TEST(TrialHistory, IsShortenedWhereLessIsKept) {
  TrialHistory whole(1000, kRungs);
  train(whole, 30);
  const auto some = TrialHistory::parse(whole.to_text(), "history.json", 4, kRungs);
  EXPECT_EQ(list(some.losses()), last(list(whole.losses()), 4));
  EXPECT_EQ(some.rung_losses(kMeans), whole.rung_losses(kMeans));
}

TEST(TrialHistory, RefusesInvalidHistories) {
  TrialHistory history(5, kRungs);
  train(history, 12);
  const Json whole = Json::parse(history.to_text());
  const auto problem = [](const Json& json) {
    const auto error = testing::thrown<CorruptData>(
        [&] { TrialHistory::parse(json.dump(), "history.json", 5, kRungs); });
    EXPECT_EQ(error.path, "history.json");
    return std::string(error.what());
  };
  for (const auto& [key, value] : whole.items()) {
    Json without = whole;
    without.erase(key);
    if (key != "eval_metrics") problem(without);  // many models have none
    Json other = whole;
    other[key] = "text";
    problem(other);
  }
  for (const auto& [key, value] : std::vector<std::pair<std::string, Json>>{
           {"step", 11}, {"dropped", -1}, {"dropped", 6}, {"losses", {1.0}}}) {
    Json other = whole;
    other[key] = value;
    EXPECT_NE(problem(other).find("does not have a loss and a norm for each of its steps"),
              std::string::npos)
        << key;
  }
}

}  // namespace
}  // namespace spillway
