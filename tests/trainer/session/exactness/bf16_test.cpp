#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "core/base/bfloat16.h"
#include "spillway/error.h"
#include "spillway/ids.h"
#include "spillway/sequential.h"
#include "tests/support/check/thrown.h"
#include "tests/support/disk/temporary_folder.h"
#include "tests/support/models/safetensors.h"
#include "tests/support/models/small_nets.h"
#include "tests/support/models/small_resnet.h"
#include "tests/support/models/tiny_gpt.h"
#include "tests/support/run/training_run.h"
#include "tests/support/run/watched_session.h"

/// `train.dtype: bf16`: what layers compute with, what stays fp32, and its cost; the same for
/// `gradient_dtype`. exactness_matrix_test and random_configuration_test check that bits depend on
/// nothing else.
namespace spillway::testing {
namespace {

TrialConfig in_bf16(TrialConfig trial) {
  trial.train.dtype = FloatType::bf16;
  return trial;
}

TrialConfig with_gradients_in_bf16(TrialConfig trial) {
  trial.train.gradient_dtype = FloatType::bf16;
  return trial;
}

/// The types of parameters and inputs that layers saw.
class SeenTypes {
 public:
  TrialConfig of(TrialConfig trial) {
    trial.model = [this, make = trial.model](std::int64_t vn_size) {
      auto model = make(vn_size);
      for (auto& layer : model->layers) layer = std::make_unique<Seeing>(std::move(layer), *this);
      return model;
    };
    return trial;
  }
  const std::set<at::ScalarType>& params() const { return params_; }
  const std::set<at::ScalarType>& inputs() const { return inputs_; }

 private:
  class Seeing final : public Layer {
   public:
    Seeing(std::unique_ptr<Layer> layer, SeenTypes& seen) : layer_(std::move(layer)), seen_(seen) {}
    LayerResult forward(std::span<const at::Tensor> inputs, std::span<const at::Tensor> params,
                        const LayerContext& context) const override {
      {
        const std::lock_guard lock(seen_.mutex_);
        for (const at::Tensor& x : inputs) seen_.inputs_.insert(x.scalar_type());
        for (const at::Tensor& p : params) seen_.params_.insert(p.scalar_type());
      }
      return layer_->forward(inputs, params, context);
    }

   private:
    std::unique_ptr<Layer> layer_;
    SeenTypes& seen_;
  };

  std::mutex mutex_;
  std::set<at::ScalarType> params_, inputs_;
};

TEST(Bf16, ComputesLayersButKeepsStatistics) {
  SeenTypes gpt, resnet;
  train(session_of(1, kAmple), {gpt.of(in_bf16(tiny_trial())), resnet.of(in_bf16(resnet_trial()))});
  EXPECT_EQ(gpt.params(), (std::set{at::kBFloat16}));
  EXPECT_EQ(gpt.inputs(), (std::set{at::kBFloat16, at::kLong}));
  EXPECT_EQ(resnet.params(), (std::set{at::kBFloat16, at::kFloat, at::kLong}));
  EXPECT_EQ(resnet.inputs(), (std::set{at::kBFloat16, at::kLong}));
}

/// Compares with the same trial in fp32, which other tests compare with plain LibTorch.
TEST(Bf16, LearnsAsWellAsFp32) {
  TrialConfig gpt = tiny_trial(), resnet = resnet_trial();
  gpt.train.max_steps = 60;
  for (const TrialConfig& trial : {gpt, resnet}) {
    const TrialResult half = train(session_of(1, kAmple), in_bf16(trial)).trials[0];
    const TrialResult whole = train(session_of(1, kAmple), trial).trials[0];
    ASSERT_EQ(half.state, TrialState::done) << half.reason;
    EXPECT_NE(half.losses, whole.losses) << "it is another arithmetic";
    EXPECT_LT(largest_difference(half.losses, whole.losses), 0.03) << trial.name;
    EXPECT_LT(whole.losses.back(), 0.9 * whole.losses.front()) << "it learns";
    EXPECT_NEAR(half.eval_losses.back().second / whole.eval_losses.back().second, 1, 0.02);
  }
}

bool is_narrow(float x) { return to_float(to_bfloat16(x)) == x; }

/// Steps too small for bf16 are not lost: bf16 weights would keep their initial values.
TEST(Bf16, KeepsHostWeightsInFp32) {
  const TemporaryFolder folder;
  TrialConfig trial = in_bf16(tiny_trial());
  trial.weights_file = folder / "weights.safetensors";
  trial.train.learning_rate = 1e-5;
  train(session_of(1, kAmple), trial);
  std::ifstream file(trial.weights_file, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(bytes.find("BF16"), std::string::npos);
  std::size_t elements = 0, narrow_ones = 0;
  for (const auto& [name, tensor] : read_safetensors(bytes)) {
    for (const float x : std::span(tensor.const_data_ptr<float>(), at(tensor.numel()))) {
      ++elements;
      if (is_narrow(x)) ++narrow_ones;
    }
  }
  EXPECT_GT(elements, 10'000u);
  EXPECT_LT(narrow_ones, elements / 10);
}

TEST(Bf16, TravelsInHalfTheBytes) {
  const TrialConfig trial = tiny_trial();
  const Bytes least = smallest_budget(trial), least_half = smallest_budget(in_bf16(trial));
  EXPECT_LT(least_half, least);
  const RunResult whole = train(session_of(1, least), trial);
  const RunResult half = train(session_of(1, least), in_bf16(trial));
  ASSERT_GT(half.trials[0].num_shards, 1);
  const auto bytes = [](const RunResult& r) { return r.h2d_weight_bytes; };
  EXPECT_LE(bytes(half), bytes(whole) / 2 + bytes(whole) / 50) << "alignment aside";
  expect_within_budgets(half);
}

TEST(GradientsInBf16, TravelInHalfTheBytes) {
  const TrialConfig trial = tiny_trial(), half = with_gradients_in_bf16(trial);
  const auto bytes = [](const TrialConfig& config) {
    return train(session_of(1, kAmple), config).d2h_bytes;
  };
  EXPECT_LE(bytes(half), bytes(trial) / 2 + bytes(trial) / 50) << "alignment aside";
  EXPECT_GE(bytes(half), bytes(trial) / 2);
  const auto home = [](const TrialConfig& config) {
    Session session(session_of(1, kAmple));
    return session.plan(session.submit(config)).home_sums_bytes;
  };
  EXPECT_LT(home(half), home(trial));
}

TEST(GradientsInBf16, AreTheSameForAllLanesOfModules) {
  TrialConfig wide = net_trial(small_nets()[0]);
  wide.train.virtual_nodes = wide.train.reduction_groups = 8;
  const TrialConfig trial = with_gradients_in_bf16(wide);
  const TrialResult alone = train(session_of(1, kAmple), trial).trials[0];
  const auto run = train(session_of(3, smallest_budget(trial)), with_lanes(trial, {1, 6, 1}));
  expect_same_bits(run.trials[0], alone);
  expect_other_bits(train(session_of(1, kAmple), wide).trials[0], alone);
}

TEST(GradientsInBf16, LearnAsWellAsFp32) {
  for (const TrialConfig& trial : {tiny_trial(), resnet_trial()}) {
    const TrialResult half = train(session_of(1, kAmple), with_gradients_in_bf16(trial)).trials[0];
    const TrialResult whole = train(session_of(1, kAmple), trial).trials[0];
    EXPECT_LT(largest_difference(half.losses, whole.losses), 0.01) << trial.name;
    EXPECT_NE(half.gradient_norms, whole.gradient_norms);
    EXPECT_LT(largest_difference(half.gradient_norms, whole.gradient_norms), 0.05) << trial.name;
  }
}

TEST(Bf16, ReportsTheSmallestBudget) {
  for (const TrialConfig& fp32 : {tiny_trial(), resnet_trial()}) {
    const TrialConfig trial = with_gradients_in_bf16(in_bf16(fp32));
    const Bytes least = smallest_budget(trial);
    const RunResult tight = train(session_of(1, least), trial);
    expect_same_bits(tight.trials[0], train(session_of(1, kAmple), trial).trials[0]);
    expect_within_budgets(tight);
    Session less(session_of(1, least - kPage));
    EXPECT_THROW(less.submit(trial), DoesNotFit);
  }
}

/// The bf16 copies are rebuilt from a checkpoint.
TEST(Bf16, ResumesWithTheSameBits) {
  const TemporaryFolder folder;
  const TrialConfig trial = with_gradients_in_bf16(in_bf16(tiny_trial()));
  TrialConfig cut = trial;
  cut.checkpoint = {.folder = folder / "checkpoints", .every_steps = 7, .resume = true};
  WatchedSession stopped(session_of(1, kAmple));
  stopped.submit_in_lockstep(cut);
  stopped.run([&](const SessionEvent& event) {
    if (event.kind == SessionEvent::Kind::step && event.step == 9) stopped.session.stop();
  });
  ASSERT_EQ(stopped.result.trials[0].state, TrialState::stopped);
  const RunResult whole = train(session_of(1, kAmple), trial);
  const RunResult resumed = train(session_of(2, kAmple), with_lanes(cut, {5, 3}));
  expect_same_bits(resumed.trials[0], whole.trials[0]);

  TrialConfig other = cut;
  other.train.dtype = other.train.gradient_dtype = FloatType::fp32;
  Session session(session_of(1, kAmple));
  const std::string said = thrown<ConfigError>([&] { session.submit(other); }).what();
  EXPECT_NE(said.find("train.dtype"), std::string::npos) << said;
  EXPECT_NE(said.find("train.gradient_dtype"), std::string::npos) << said;
}

/// A user layer that always computes in fp32: its output would be read as bf16.
TEST(Bf16, NamesALayerOfAnotherType) {
  class Widening final : public Layer {
   public:
    explicit Widening(std::unique_ptr<Layer> layer) : layer_(std::move(layer)) {}
    LayerResult forward(std::span<const at::Tensor> inputs, std::span<const at::Tensor> params,
                        const LayerContext& context) const override {
      LayerResult result = layer_->forward(inputs, params, context);
      result.output = result.output.to(at::kFloat);
      return result;
    }

   private:
    std::unique_ptr<Layer> layer_;
  };
  TrialConfig trial = in_bf16(tiny_trial());
  trial.model = [make = trial.model](std::int64_t vn_size) {
    auto model = make(vn_size);
    model->layers[1] = std::make_unique<Widening>(std::move(model->layers[1]));
    return model;
  };
  SessionConfig config = session_of(1, kAmple);
  config.pilot_cache.clear();  // for its costs, the layer is the one that it wraps
  Session session(config);
  const std::string said = thrown<Error>([&] { session.submit(trial); }).what();
  EXPECT_NE(said.find("returned Float, but its output must be BFloat16"), std::string::npos)
      << said;
}

}  // namespace
}  // namespace spillway::testing
