// A custom search: it tries sixteen learning rates, and each round stops the half with the larger
// evaluation losses. Paused trials keep their weights.
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "spillway/sequential.h"
#include "spillway/session.h"
#include "spillway/tensor_source.h"

torch::nn::Sequential make_network() {
  using namespace torch::nn;
  return Sequential(Linear(16, 256), ReLU(), Linear(256, 256), ReLU(), Linear(256, 4));
}

int main() {
  // The class is the quarter of the inputs that has the largest sum.
  torch::manual_seed(1);
  const torch::Tensor inputs = torch::randn({2000, 16});
  const torch::Tensor classes = inputs.view({2000, 4, 4}).sum(2).argmax(1);
  const auto data = spillway::tensor_data(inputs, classes, /*eval_fraction=*/0.2);

  spillway::SessionConfig config;
  config.devices = {{.memory = 8 << 20}, {.memory = 8 << 20}};
  spillway::Session session(config);
  session.start();

  constexpr std::int64_t kFirstRound = 10, kSteps = 80;
  std::mt19937 random(1);
  std::uniform_real_distribution<double> exponent(-5, -1);
  std::vector<spillway::JobId> left;
  for (int i = 0; i < 16; ++i) {
    spillway::TrialConfig trial;
    trial.model = spillway::sequential_factory(make_network, {.input_shape = {16}});
    trial.data = data;
    trial.train.learning_rate = std::pow(10, exponent(random));
    trial.train.max_steps = kSteps;
    trial.until = kFirstRound;
    char name[32];
    std::snprintf(name, sizeof name, "lr %.2g", trial.train.learning_rate);
    trial.name = name;
    left.push_back(session.submit(trial));
  }
  for (std::int64_t until = kFirstRound; until < kSteps; until *= 2) {
    session.wait();  // until every trial has ended or is paused
    const auto trials = session.result().trials;
    const auto eval_loss = [&](spillway::JobId id) {
      return trials[id.index()].eval_loss.value_or(INFINITY);
    };
    std::ranges::sort(left, {}, eval_loss);
    const auto kept = left.begin() + std::ssize(left) / 2;
    std::for_each(kept, left.end(), [&](spillway::JobId id) { session.stop(id); });
    left.erase(kept, left.end());
    std::printf("after %lld steps the best of %lld has an evaluation loss of %.3f\n",
                static_cast<long long>(until), static_cast<long long>(2 * std::ssize(left)),
                eval_loss(left.front()));
    for (const auto id : left) session.extend(id, 2 * until);
  }
  session.finish();
  for (const auto id : left) {
    const auto trial = session.result().trials[id.index()];
    std::printf("%s is %s after %lld steps: evaluated %.3f\n", trial.name.c_str(),
                to_string(trial.state), static_cast<long long>(trial.steps),
                trial.eval_loss.value_or(NAN));
  }
}
