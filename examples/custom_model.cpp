// Trains your own network with three learning rates, on devices that cannot hold its training
// state.
#include <torch/torch.h>

#include <cmath>
#include <cstdio>

#include "spillway/sequential.h"
#include "spillway/session.h"
#include "spillway/tensor_source.h"

struct ResidualImpl : torch::nn::Module {
  explicit ResidualImpl(int channels)
      : conv(register_module(
            "conv",
            torch::nn::Conv2d(torch::nn::Conv2dOptions(channels, channels, 3).padding(1)))) {}
  torch::Tensor forward(torch::Tensor x) { return x + torch::relu(conv(x)); }
  torch::nn::Conv2d conv;
};
TORCH_MODULE(Residual);

torch::nn::Sequential make_network() {
  using namespace torch::nn;
  return Sequential(Conv2d(Conv2dOptions(1, 32, 3).padding(1)), Residual(32), Residual(32),
                    MaxPool2d(2), Residual(32), Residual(32), Flatten(), Linear(512, 128), ReLU(),
                    Linear(128, 2));
}

int main() {
  // Pictures of noise. The class is the number of the brighter half.
  torch::manual_seed(1);
  const torch::Tensor pictures = torch::randn({600, 1, 8, 8});
  const torch::Tensor halves = pictures.view({600, 2, 32}).mean(2);
  const auto data = spillway::tensor_data(pictures, halves.argmax(1), /*eval_fraction=*/0.2);

  spillway::SessionConfig config;
  config.devices = {{.memory = 3 << 19}, {.memory = 3 << 19}};
  spillway::Session session(config);
  for (const double rate : {1e-3, 3e-3, 1e-2}) {
    spillway::TrialConfig trial;
    trial.model = spillway::sequential_factory(make_network, {.input_shape = {1, 8, 8}});
    trial.data = data;
    trial.train.learning_rate = rate;
    trial.train.reduction_groups = 1;
    char name[32];
    std::snprintf(name, sizeof name, "lr %g", rate);
    trial.name = name;
    session.submit(trial);
  }
  session.run();
  for (const auto& trial : session.result().trials) {
    std::printf("%-8s %s: %lld bytes of state in %d shards, loss %.3f -> %.3f, evaluated %.3f\n",
                trial.name.c_str(), to_string(trial.state),
                static_cast<long long>(trial.training_state_bytes), trial.num_shards,
                trial.first_loss.value_or(NAN), trial.final_loss.value_or(NAN),
                trial.eval_loss.value_or(NAN));
  }
}
