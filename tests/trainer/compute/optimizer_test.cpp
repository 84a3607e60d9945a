#include "trainer/compute/optimizer.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <utility>
#include <variant>
#include <vector>

#include "spillway/error.h"
#include "tests/support/check/thrown.h"
#include "tests/support/run/training_run.h"

namespace spillway::testing {
namespace {

TrainConfig config_of(LrSchedulerType schedule, double warmup_ratio) {
  TrainConfig config;
  config.learning_rate = 2;
  config.max_steps = 10;
  config.lr_scheduler_type = schedule;
  config.warmup_ratio = warmup_ratio;
  return config;
}

void expect_rates(const TrainConfig& config, const std::vector<double>& rates) {
  for (std::size_t step = 0; step < rates.size(); ++step) {
    EXPECT_NEAR(learning_rate_at(config, static_cast<std::int64_t>(step)), rates[step], 1e-12)
        << to_string(config.lr_scheduler_type) << " at step " << step;
  }
}

/// Values of Hugging Face's get_*_schedule_with_warmup(optimizer, 2, 10) at a rate of 2.
TEST(Schedule, GivesHuggingFacesValues) {
  expect_rates(config_of(LrSchedulerType::linear, 0.2),
               {0, 1, 2, 1.75, 1.5, 1.25, 1, 0.75, 0.5, 0.25});
  expect_rates(config_of(LrSchedulerType::constant, 0.2), {0, 1, 2, 2, 2, 2, 2, 2, 2, 2});
  expect_rates(config_of(LrSchedulerType::cosine, 0.2),
               {0, 1, 2, 1.9238795325112867, 1.7071067811865475, 1.3826834323650898, 1,
                0.6173165676349103, 0.2928932188134525, 0.0761204674887133});
  TrainConfig wsd = config_of(LrSchedulerType::warmup_stable_decay, 0.2);
  wsd.decay_ratio =
      0.4;  // get_wsd_schedule(optimizer, 2, 4, num_training_steps=10, decay_type="linear")
  expect_rates(wsd, {0, 1, 2, 2, 2, 2, 2, 1.5, 1, 0.5});
}

TEST(Schedule, MayDoWithoutWarmUp) {
  expect_rates(config_of(LrSchedulerType::linear, 0),
               {2, 1.8, 1.6, 1.4, 1.2, 1, 0.8, 0.6, 0.4, 0.2});
  expect_rates(config_of(LrSchedulerType::constant, 0), {2, 2, 2});
  EXPECT_EQ(learning_rate_at(config_of(LrSchedulerType::cosine, 0), 0), 2);
}

TEST(Schedule, KeepsItsShapeWhenTheRateChanges) {
  TrainConfig config = config_of(LrSchedulerType::linear, 0.2);
  config.changes = {{4, {.learning_rate = 4}}, {7, {.weight_decay = 0.5}}};
  expect_rates(config, {0, 1, 2, 1.75, 3, 2.5, 2, 1.5, 1, 0.5});
  EXPECT_EQ(values_at(config, 6).weight_decay, TrainConfig().weight_decay);
  EXPECT_EQ(values_at(config, 7).weight_decay, 0.5);
  config.changes.push_back({4, {.learning_rate = 8}});  // later for the same step
  config.changes.push_back({2, {.learning_rate = 1}});  // later for an earlier one
  expect_rates(config, {0, 1, 1, 0.875, 6, 5, 4, 3, 2, 1});
}

/// Of 10 steps that became 14 and then 20.
TEST(Schedule, KeepsEarlierStepsWhenATrialIsExtended) {
  for (const auto type :
       {LrSchedulerType::linear, LrSchedulerType::cosine, LrSchedulerType::constant}) {
    const TrainConfig before = config_of(type, 0.2);
    TrainConfig config = before;
    config.extended_from = {10, 14};
    config.max_steps = 20;
    for (const auto how : {LrExtension::restart, LrExtension::stretch}) {
      config.lr_scheduler_extend = how;
      for (std::int64_t step = 0; step < 10; ++step) {
        EXPECT_EQ(learning_rate_at(config, step), learning_rate_at(before, step));
      }
      TrainConfig middle = before, last = before;
      const bool restarts = how == LrExtension::restart;
      middle.max_steps = restarts ? 4 : 14;
      last.max_steps = restarts ? 6 : 20;
      const bool is_constant = type == LrSchedulerType::constant;  // it does not warm up again
      for (std::int64_t step = 10; step < 20; ++step) {
        const std::int64_t begin = !restarts ? 0 : step < 14 ? 10 : 14;
        const double rate = learning_rate_at(step < 14 ? middle : last, step - begin);
        EXPECT_EQ(learning_rate_at(config, step), is_constant ? 2 : rate);
      }
    }
  }
}

/// Of 10 steps that became 20: without a second warm-up, which would take 10 steps.
TEST(Schedule, HasANewPlateauAfterADecay) {
  TrainConfig config = config_of(LrSchedulerType::warmup_stable_decay, 0.5);
  config.decay_ratio = 0.2;
  config.extended_from = {10};
  config.max_steps = 20;
  config.validate();  // no LrExtension is needed
  expect_rates(config, {0, 0.4, 0.8, 1.2, 1.6, 2, 2, 2, 2, 1, 2, 2, 2, 2, 2, 2, 2, 1.5, 1, 0.5});
}

TEST(Schedule, RefusesToExtendAnEndWithoutTheUsersChoice) {
  TrainConfig config = config_of(LrSchedulerType::cosine, 0);
  config.extended_from = {4};
  EXPECT_EQ(thrown<ConfigError>([&] { config.validate(); }).problem,
            "is none, but train.lr_scheduler_type cosine has no learning rate after its end at "
            "step 4; write restart or stretch");
  config.lr_scheduler_extend = LrExtension::stretch;
  config.validate();
  config.extended_from = {4, 10};
  EXPECT_EQ(thrown<ConfigError>([&] { config.validate(); }).problem,
            "is [4, 10], must ascend and be below train.max_steps 10");
}

TEST(LrFunction, ReplacesTheScheduleButNotTheRate) {
  TrainConfig config = config_of(LrSchedulerType::cosine, 0);
  config.lr_function = {.name = "doubling", .factor = [](std::int64_t step) {
                          return std::ldexp(1.0, static_cast<int>(step));
                        }};
  config.changes = {{.step = 3, .values = {.learning_rate = 0.5}}};
  config.extended_from = {4};  // needs no lr_scheduler_extend
  config.validate();
  EXPECT_EQ(learning_rate_at(config, 0), 2);
  EXPECT_EQ(learning_rate_at(config, 2), 8);
  EXPECT_EQ(learning_rate_at(config, 5), 16);
}

TEST(LrFunction, HasANameAndNoWarmup) {
  TrainConfig config = config_of(LrSchedulerType::cosine, 0);
  config.lr_function.factor = [](std::int64_t) { return 1.0; };
  EXPECT_EQ(thrown<ConfigError>([&] { config.validate(); }).field, "train.lr_function");
  config.lr_function.name = "one";
  config.validate();
  config.warmup_ratio = 0.5;
  EXPECT_EQ(thrown<ConfigError>([&] { config.validate(); }).field, "train.warmup_ratio");
  config.lr_function.factor = nullptr;
  EXPECT_EQ(thrown<ConfigError>([&] { config.validate(); }).field, "train.lr_function");
}

TEST(UpdateRule, HasTheValuesOfTheGroup) {
  TrainConfig config = config_of(LrSchedulerType::constant, 0);
  config.weight_decay = 0.25;
  config.parameter_groups = {{.pattern = "*.bias", .learning_rate_scale = 0.5, .weight_decay = 1},
                             {.pattern = "head.*", .learning_rate_scale = 3}};
  const auto values = [&](const ParamSpec& param) {
    const auto rule = std::get<kernels::AdamW>(update_rule(config, 0, param, 1));
    return std::pair(rule.learning_rate, rule.weight_decay);
  };
  EXPECT_EQ(values({.name = "head.bias", .decay = false}), std::pair(1.0f, 1.0f));
  EXPECT_EQ(values({.name = "head.weight"}), std::pair(6.0f, 0.25f));
  EXPECT_EQ(values({.name = "head.norm", .decay = false}), std::pair(6.0f, 0.0f));
  EXPECT_EQ(values({.name = "body.weight"}), std::pair(2.0f, 0.25f));
}

TEST(UpdateRule, KeepsOneMomentForSgdAndAppliesItsHyperParameters) {
  TrainConfig config = config_of(LrSchedulerType::constant, 0);
  EXPECT_EQ(num_moments(config), 2);
  config.optimizer = OptimizerKind::sgd;
  config.momentum = 0.5;
  config.weight_decay = 0.25;
  EXPECT_EQ(num_moments(config), 1);
  const auto updated = [&](bool decay) {
    std::array<float, 3> p{1, 2, 4}, m{8, 8, 8}, g{2, 2, 2};
    apply_update({.weights = p.data(), .moments = {m.data()}, .gradient = g.data()}, 1, 2,
                 update_rule(config, 0, {.decay = decay}, 3));
    EXPECT_EQ(m, (std::array<float, 3>{8, decay ? 10.5f : 10.0f, 8}));
    return p;
  };
  EXPECT_EQ(updated(true), (std::array<float, 3>{1, -19, 4}));  // 2 - 2 * (4 + 6 + 0.5)
  EXPECT_EQ(updated(false), (std::array<float, 3>{1, -18, 4}));
}

TEST(TrainConfig, NamesWhatItDoesNotKnow) {
  const auto field_of = [](const auto& change) {
    TrainConfig config;
    change(config);
    try {
      config.validate();
    } catch (const ConfigError& error) {
      return error.field;
    }
    return std::string("nothing");
  };
  EXPECT_EQ(field_of([](TrainConfig& c) { c.optimizer = OptimizerKind::sgd; }), "nothing");
  EXPECT_EQ(field_of([](TrainConfig& c) { c.momentum = 1; }), "train.momentum");
}

TrialConfig sgd_trial() {
  TrialConfig trial = tiny_trial("sgd");
  trial.train.optimizer = OptimizerKind::sgd;
  trial.train.learning_rate = 0.1;
  trial.train.lr_scheduler_type = LrSchedulerType::linear;
  return trial;
}

TEST(Sgd, KeepsTheBitsOfAResidentRunWhenSpilled) {
  const RunResult resident = train(session_of(1, kAmple), sgd_trial());
  const RunResult spilled = train(session_of(1, smallest_budget(sgd_trial())), sgd_trial());
  EXPECT_EQ(resident.trials[0].num_shards, 1);
  EXPECT_GT(spilled.trials[0].num_shards, 1);
  expect_same_bits(spilled.trials[0], resident.trials[0]);
  EXPECT_LT(resident.trials[0].losses.back(), resident.trials[0].losses.front());
  TrialConfig other = sgd_trial();
  other.train.momentum = 0.8;
  expect_other_bits(train(session_of(1, kAmple), other).trials[0], resident.trials[0]);
}

TEST(Sgd, NeedsOneMomentLess) {
  Session session(session_of(1, kAmple));
  const TrialPlan adamw = session.plan(session.submit(tiny_trial()));
  const TrialPlan sgd = session.plan(session.submit(sgd_trial()));
  const Bytes weights = sgd.training_state_bytes / 3;  // weights, moment, gradients
  for (const Bytes less :
       {adamw.training_state_bytes - sgd.training_state_bytes, adamw.home_bytes - sgd.home_bytes}) {
    EXPECT_NEAR(static_cast<double>(less), static_cast<double>(weights),
                0.2 * static_cast<double>(weights));
  }
  EXPECT_EQ(sgd.smallest_budget_bytes, adamw.smallest_budget_bytes);
}

}  // namespace
}  // namespace spillway::testing
