#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "experiments/support/spread.h"
#include "experiments/support/trained.h"

/// Two CPU devices, one slowed: how a step is split, what that is predicted to take, what it takes.
namespace spillway::experiments {
namespace {

struct Setting {
  GptConfig model;
  int virtual_nodes, steps, repetitions;
  std::vector<double> slowdowns;
};

/// Seconds a step, by the commits of a run.
double step_of(const RunResult& result) {
  std::vector<double> commits_s;
  for (const TraceSpan& span : result.trace) {
    if (span.name == "commit") commits_s.push_back(span.finished_s);
  }
  return step_seconds(commits_s);
}

struct Run {
  Trained trained;
  double predicted_s() const { return step_of(trained.simulated); }
  double measured_s() const { return step_of(trained.result); }
};

class Experiment {
 public:
  explicit Experiment(const Setting& setting) : setting_(setting), cache_("spillway_unequal") {
    trial_ = gpt_trial(setting.model);
    trial_.train.virtual_nodes = trial_.train.reduction_groups = setting.virtual_nodes;
    trial_.train.batch_size = 2 * setting.virtual_nodes;
    trial_.train.max_steps = setting.steps;
  }

  /// On devices slowed by so much, with so many lanes of so many groups; none: as planned.
  Run run(const std::vector<double>& slowdowns, int lanes, std::vector<int> lane_groups = {}) {
    SessionConfig config{.pilot_cache = cache_.path(), .max_trace_spans = 1'000'000};
    for (const double slowdown : slowdowns) {
      config.devices.push_back({.memory = 256_MiB, .slowdown = slowdown});
    }
    trial_.train.lanes = lanes;
    trial_.train.lane_groups = std::move(lane_groups);
    Run made{train(config, {trial_})};
    const std::string weights = made.trained.result.trials[0].weights_xxh3;
    if (weights_.empty()) weights_ = weights;
    if (weights != weights_) throw Error("a split has changed the weights");
    return made;
  }

  void print() {
    const Run first = run({1}, 1);
    std::printf("- Model: a GPT of %d blocks, %d virtual nodes of 2 samples, %d steps\n\n",
                static_cast<int>(setting_.model.num_hidden_layers), setting_.virtual_nodes,
                setting_.steps);
    print_head({"the second device", "reduction groups", "predicted, ms", "measured, ms",
                "error, %", "halves, ms", "the first alone, ms", "faster than alone"});
    std::vector<std::string> declined;
    for (const double slowdown : setting_.slowdowns) print_row_of(slowdown, declined);
    std::printf("\n");
    for (const auto& sentence : declined) std::printf("- %s\n", sentence.c_str());
    std::printf("- All these runs ended with the same weights (%s).\n", weights_.c_str());
  }

 private:
  void print_row_of(double slowdown, std::vector<std::string>& declined) {
    const int half = setting_.virtual_nodes / 2;
    std::vector<double> predicted, measured, errors, halves, alone, gains;
    TrialPlan plan;
    for (int i = 0; i < setting_.repetitions; ++i) {
      const Run split = run({1, slowdown}, 2);
      plan = split.trained.plan;
      predicted.push_back(1e3 * split.predicted_s());
      measured.push_back(1e3 * split.measured_s());
      errors.push_back(100 * (split.predicted_s() / split.measured_s() - 1));
      halves.push_back(1e3 * run({1, slowdown}, 2, {half, half}).measured_s());
      alone.push_back(1e3 * run({1}, 1).measured_s());
      gains.push_back(alone.back() / measured.back());
    }
    declined.insert(declined.end(), plan.declined.begin(), plan.declined.end());
    std::string groups;
    for (const int g : plan.lane_groups)
      groups += (groups.empty() ? "" : " + ") + std::to_string(g);
    print_row({slowdown == 1 ? "as fast" : fixed(slowdown, 0) + " times slower", groups,
               text_of(spread_of(predicted), 1), text_of(spread_of(measured), 1),
               text_of(spread_of(errors), 1), text_of(spread_of(halves), 1),
               text_of(spread_of(alone), 1), text_of(spread_of(gains), 2)});
  }

  const Setting setting_;
  const PilotCache cache_;
  TrialConfig trial_;
  std::string weights_;  // of the first run
};

}  // namespace

void print_unequal(bool brief) {
  const Setting whole{
      {.num_hidden_layers = 4, .max_position_embeddings = 64}, 12, 14, 3, {1, 2, 4, 24}};
  const Setting small{
      {.num_hidden_layers = 1, .hidden_size = 32, .max_position_embeddings = 8}, 4, 4, 1, {2, 60}};
  Experiment(brief ? small : whole).print();
}

}  // namespace spillway::experiments

int main(int argc, char** argv) {
  spillway::experiments::print_unequal(argc > 1 && std::strcmp(argv[1], "--brief") == 0);
}
