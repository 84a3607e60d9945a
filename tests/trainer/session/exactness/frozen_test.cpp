#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "tests/support/disk/temporary_folder.h"
#include "tests/support/run/training_run.h"
#include "trainer/compute/initialize.h"

/// Frozen parameters.
namespace spillway::testing {
namespace {

using Patterns = std::vector<std::string>;

/// A tied parameter, a whole block, and parts of layers whose other parameters are trained.
const Patterns kFrozen{"wte.*", "h.0.*", "h.1.attn.qkv.weight", "h.2.mlp.*.bias"};

TrialConfig frozen_trial(const Patterns& patterns = kFrozen) {
  GptConfig model = tiny_gpt();
  model.freeze = patterns;
  return tiny_trial("frozen", model);
}

/// Final weights by name. The file has the parameters in their order, without gaps.
std::map<std::string, std::vector<float>> weights_of(const std::string& file,
                                                     const ModelSpec& model) {
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), sizeof header_bytes);
  std::size_t offset = sizeof header_bytes + header_bytes;
  std::map<std::string, std::vector<float>> weights;
  for (const ParamSpec& param : model.params) {
    EXPECT_NE(file.find("\"" + param.name + "\""), std::string::npos) << param.name;
    auto& values = weights[param.name];
    values.resize(static_cast<std::size_t>(param.tensor.elements()));
    EXPECT_LE(offset + param.tensor.bytes(), file.size());
    std::memcpy(values.data(), file.data() + offset, param.tensor.bytes());
    offset += param.tensor.bytes();
  }
  EXPECT_EQ(offset, file.size());
  return weights;
}

TEST(Frozen, KeepsFrozenWeightsAndTrainsTheOthers) {
  const TemporaryFolder folder;
  TrialConfig trial = frozen_trial();
  trial.weights_file = folder / "w.safetensors";
  const auto result = train(session_of(1, smallest_budget(trial)), trial).trials[0];
  ASSERT_EQ(result.state, TrialState::done) << result.reason;
  EXPECT_LT(result.losses.back(), result.losses.front());
  const ModelSpec model = trial.model(2)->spec;
  const auto weights = weights_of(folder.read("w.safetensors"), model);
  for (std::size_t p = 0; p < model.params.size(); ++p) {
    const ParamSpec& param = model.params[p];
    std::vector<float> initial(weights.at(param.name).size());
    initialize(initial.data(), param, trial.train.seed, p);
    EXPECT_EQ(weights.at(param.name) == initial, !param.trainable) << param.name;
  }
}

TEST(Frozen, KeepsNeitherGradientsNorMoments) {
  Session session(session_of(1, kAmple));
  const JobId whole = session.submit(tiny_trial()), part = session.submit(frozen_trial());
  Bytes frozen = 0, uses = 0;
  const ModelSpec model = frozen_trial().model(2)->spec;
  for (int p = 0; p < static_cast<int>(model.params.size()); ++p) {
    const ParamSpec& param = model.params[static_cast<std::size_t>(p)];
    if (param.trainable) continue;
    frozen += param.tensor.bytes();
    uses += param.tensor.bytes() * static_cast<Bytes>(model.num_uses(p));
  }
  const Bytes state =
      session.plan(whole).training_state_bytes - session.plan(part).training_state_bytes;
  const auto least = static_cast<double>(2 * frozen + uses);
  EXPECT_NEAR(static_cast<double>(state), least, 8 * kPage);
  EXPECT_EQ(session.plan(whole).home_bytes - session.plan(part).home_bytes, state);
  EXPECT_LE(session.plan(part).smallest_budget_bytes, session.plan(whole).smallest_budget_bytes);
}

TEST(Frozen, CopiesNoFrozenGradientsToTheHost) {
  const Bytes budget = smallest_budget(tiny_trial());
  const auto back = [&](const TrialConfig& trial) {
    TrialConfig spilled = trial;
    spilled.train.order = OrderChoice::shard_major;
    return train(session_of(1, budget * 4), spilled).d2h_bytes;
  };
  EXPECT_LT(back(frozen_trial({"wte.*", "h.*"})), back(tiny_trial()) / 2);
}

/// The first layers, of which one is alone in its shard on a small device.
const Patterns kFirst{"wte.*", "wpe.*", "h.0.*"};

/// The same training, whose frozen layers pass gradients on.
TrialConfig with_all_gradients(TrialConfig trial) {
  trial.model = [factory = trial.model](std::int64_t vn_size) {
    auto model = factory(vn_size);
    for (EdgeSpec& edge : model->spec.edges) edge.differentiable = true;
    return model;
  };
  return trial;
}

TEST(Frozen, HasTheBitsOfABackwardThroughFrozenLayers) {
  for (const Patterns& patterns : {kFirst, Patterns{"h.1.*"}}) {
    const TrialConfig trial = frozen_trial(patterns);
    const TrialConfig whole = with_all_gradients(trial);
    const std::string bits = train(session_of(1, kAmple), whole).trials[0].weights_xxh3;
    EXPECT_NE(bits, train(session_of(1, kAmple), tiny_trial()).trials[0].weights_xxh3);
    const Bytes least = smallest_budget(trial);
    for (const Bytes budget : {kAmple, least, 2 * least}) {
      for (const int lanes : {1, 2}) {
        TrialConfig spilled = trial;
        spilled.train.data_parallel = lanes;
        const auto result = train(session_of(lanes, budget), spilled).trials[0];
        ASSERT_EQ(result.state, TrialState::done) << result.reason;
        EXPECT_EQ(result.weights_xxh3, bits) << format_bytes(budget) << ", " << lanes << " lanes";
        if (budget == least) {
          EXPECT_GT(result.num_shards, 2);
        }
      }
    }
  }
}

TEST(Frozen, CopiesFrozenFirstLayersOnceAStep) {
  const TrialConfig trial = frozen_trial(kFirst);
  const auto copied = [&](const TrialConfig& config) {
    TrialConfig spilled = config;
    spilled.train.order = OrderChoice::shard_major;
    return train(session_of(1, smallest_budget(with_all_gradients(trial))), spilled)
        .h2d_weight_bytes;
  };
  EXPECT_LT(copied(trial), copied(with_all_gradients(trial)));
}

double first_gradient_norm(TrialConfig trial) {
  trial.train.max_steps = 1;
  Session session(session_of(1, kAmple));
  session.submit(trial);
  session.run();
  double norm = 0;
  for (const SessionEvent& event : session.poll(0, 0)) norm = std::max(norm, event.gradient_norm);
  return norm;
}

TEST(Frozen, ComputesTheNormOfTrainedParametersOnly) {
  const Patterns first{"wte.*", "h.0.*", "h.2.*"}, others{"wpe.*", "h.1.*", "ln_f.*"};
  const double all = first_gradient_norm(tiny_trial());
  const double part = first_gradient_norm(frozen_trial(first));
  const double rest = first_gradient_norm(frozen_trial(others));
  EXPECT_GT(part, 0);
  EXPECT_GT(rest, 0);
  EXPECT_NEAR(part * part + rest * rest, all * all, 1e-6 * all * all);
}

}  // namespace
}  // namespace spillway::testing
