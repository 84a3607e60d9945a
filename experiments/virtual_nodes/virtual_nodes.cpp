#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "experiments/support/spread.h"
#include "experiments/support/trained.h"

/// The cost of virtual nodes: device bytes by their number, and time compared with one plain batch.
namespace spillway::experiments {
namespace {

constexpr int kGroups = 8;

TrialConfig trial_of(const GptConfig& model, int virtual_nodes, int samples, int steps) {
  TrialConfig trial = gpt_trial(model);
  trial.train.virtual_nodes = virtual_nodes;
  trial.train.reduction_groups = std::min(virtual_nodes, kGroups);
  trial.train.batch_size = static_cast<std::int64_t>(virtual_nodes) * samples;
  trial.train.max_steps = steps;
  return trial;
}

Trained run(const TrialConfig& trial, Bytes memory) {
  return train({.devices = {{.memory = memory}}}, {trial});
}

/// Bytes by number of virtual nodes of two samples each.
void print_memory(const GptConfig& model, int most) {
  print_head({"virtual nodes", "groups", "resident: peak, MiB", "spilled: smallest budget, MiB",
              "spilled: peak, MiB", "home, MiB"});
  const auto mib = [](Bytes bytes) { return fixed(static_cast<double>(bytes) / 1_MiB, 2); };
  Bytes spilled_budget = 0;
  for (int vns = 1; vns <= most; vns *= 2) {
    const TrialConfig trial = trial_of(model, vns, 2, 3);
    const Trained resident = run(trial, 1_GiB);
    const Bytes least = resident.plan.smallest_budget_bytes;
    if (spilled_budget == 0) spilled_budget = 2 * least;
    const Trained spilled = run(trial, spilled_budget);
    print_row({fixed(vns, 0), fixed(trial.train.reduction_groups, 0),
               mib(resident.result.devices[0].peak_bytes), mib(least),
               mib(spilled.result.devices[0].peak_bytes), mib(spilled.plan.home_bytes)});
    std::fflush(stdout);
  }
  std::printf("\n");
}

/// Tokens per second of `virtual_nodes` relative to one, for the same batch, in alternating runs.
void print_speed(const GptConfig& model, const std::vector<int>& numbers, int samples, int steps,
                 int repetitions) {
  print_head({"virtual nodes", "samples each", "ms a step", "speed / one plain batch"});
  std::vector<std::vector<double>> step_ms(numbers.size());
  for (int i = 0; i < repetitions; ++i) {
    for (std::size_t n = 0; n < numbers.size(); ++n) {
      const TrialConfig trial = trial_of(model, numbers[n], samples / numbers[n], steps);
      step_ms[n].push_back(1e3 * run(trial, 2_GiB).step_s);
    }
  }
  for (std::size_t n = 0; n < numbers.size(); ++n) {
    std::vector<double> ratios;
    for (int i = 0; i < repetitions; ++i) ratios.push_back(step_ms[0][at(i)] / step_ms[n][at(i)]);
    print_row({fixed(numbers[n], 0), fixed(samples / numbers[n], 0),
               text_of(spread_of(step_ms[n]), 1), text_of(spread_of(ratios), 3)});
  }
}

void print(bool brief) {
  const GptConfig small{.num_hidden_layers = 1, .hidden_size = 32, .max_position_embeddings = 8};
  const GptConfig whole{.num_hidden_layers = 4, .max_position_embeddings = 64};
  print_memory(brief ? small : whole, brief ? 2 : 32);
  if (brief) {
    print_speed(small, {1, 2}, 4, 4, 1);
  } else {
    print_speed(whole, {1, 2, 4, 8, 16}, 16, 12, 5);
  }
}

}  // namespace
}  // namespace spillway::experiments

int main(int argc, char** argv) {
  spillway::experiments::print(argc > 1 && std::strcmp(argv[1], "--brief") == 0);
}
