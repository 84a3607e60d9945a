#include <cstdio>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "experiments/support/spread.h"
#include "experiments/support/trained.h"

/// Two CPU devices, one slowed: the split of a step, its predicted time, and its actual time.
namespace spillway::experiments {
namespace {

struct Setting {
  GptConfig model;
  int virtual_nodes, steps, repetitions, halves;
  std::vector<double> slowdowns;
};

/// Seconds per step: the median between the commits of a run, from the second on.
double step_of(const RunResult& result) {
  std::vector<double> commits_s, steps_s;
  for (const TraceSpan& span : result.trace) {
    if (span.name == "commit") commits_s.push_back(span.finished_s);
  }
  for (std::size_t i = 2; i < commits_s.size(); ++i) {
    steps_s.push_back(commits_s[i] - commits_s[i - 1]);
  }
  return spread_of(steps_s).median;
}

/// The predicted time of a step on these devices, with costs measured before the run and after it.
struct Run {
  Trained trained;
  double predicted_behind_s = 0;
  double predicted_s() const { return (step_of(trained.simulated) + predicted_behind_s) / 2; }
  double measured_s() const { return step_of(trained.result); }
};

class Experiment {
 public:
  explicit Experiment(const Setting& setting) : setting_(setting) {
    trial_ = gpt_trial(setting.model);
    trial_.train.virtual_nodes = trial_.train.reduction_groups = setting.virtual_nodes;
    trial_.train.batch_size = 2 * setting.virtual_nodes;
    trial_.train.max_steps = setting.steps;
  }

  /// On devices with these slowdowns.
  static SessionConfig config_of(const PilotCache& costs, const std::vector<double>& slowdowns) {
    SessionConfig config{.pilot_cache = costs.path(), .max_trace_spans = 1'000'000};
    for (const double slowdown : slowdowns) {
      config.devices.push_back({.memory = 256_MiB, .imitate = {.slowdown = slowdown}});
    }
    return config;
  }

  double predict(const PilotCache& costs, const std::vector<double>& slowdowns) {
    trial_.train.data_parallel = static_cast<int>(slowdowns.size());
    trial_.train.lane_groups.clear();
    Session session(config_of(costs, slowdowns));
    session.submit(trial_);
    return step_of(session.simulate());
  }

  /// One lane on each device, with these numbers of groups; none: as planned.
  Run run(const PilotCache& costs, const std::vector<double>& slowdowns,
          std::vector<int> lane_groups = {}) {
    trial_.train.data_parallel = static_cast<int>(slowdowns.size());
    trial_.train.lane_groups = std::move(lane_groups);
    Run made{train(config_of(costs, slowdowns), {trial_})};
    const std::string weights = made.trained.result.trials[0].weights_xxh3;
    if (weights_.empty()) weights_ = weights;
    if (weights != weights_) throw Error("a split has changed the weights");
    return made;
  }

  void print() {
    std::printf("- Model: a GPT of %d blocks, %d virtual nodes of 2 samples, %d steps\n",
                static_cast<int>(setting_.model.num_hidden_layers), setting_.virtual_nodes,
                setting_.steps);
    std::printf("\n");
    print_head({"the second device", "reduction groups", "predicted, ms", "measured, ms",
                "error, %", "halves, ms", "alone, ms", "faster than alone", "error of that, %"});
    std::set<std::string> declined;
    for (const double slowdown : setting_.slowdowns) print_row_of(slowdown, declined);
    std::printf("\n");
    for (const auto& sentence : declined) std::printf("- %s\n", sentence.c_str());
    std::printf("- All these runs ended with the same weights (%s).\n", weights_.c_str());
  }

 private:
  struct Row {
    std::map<std::string, int> splits;  // and how often they were chosen
    std::set<std::string> declined;
    std::vector<double> predicted, measured, errors, halves, alone, gains, gain_errors;
  };

  /// The first device alone and the split, between two measurements of costs: the machine's speed
  /// varies.
  void add_run(Row& row, double slowdown) {
    Run alone, split;
    {
      const PilotCache before("spillway_unequal");
      alone = run(before, {1});
      split = run(before, {1, slowdown});
    }
    const PilotCache behind("spillway_unequal");
    split.predicted_behind_s = predict(behind, {1, slowdown});
    alone.predicted_behind_s = predict(behind, {1});
    const TrialPlan& plan = split.trained.plan;
    ++row.splits[text_of(plan.lane_groups)];
    row.declined.insert(plan.declined.begin(), plan.declined.end());
    row.predicted.push_back(1e3 * split.predicted_s());
    row.measured.push_back(1e3 * split.measured_s());
    row.alone.push_back(1e3 * alone.measured_s());
    row.errors.push_back(100 * (split.predicted_s() / split.measured_s() - 1));
    const double gain = alone.measured_s() / split.measured_s();
    row.gains.push_back(gain);
    row.gain_errors.push_back(100 * (alone.predicted_s() / split.predicted_s() / gain - 1));
    // If the device does not take part, it would take long.
    if (plan.lanes == 1 || row.halves.size() == at(setting_.halves)) return;
    const int half = setting_.virtual_nodes / 2;
    row.halves.push_back(1e3 * run(behind, {1, slowdown}, {half, half}).measured_s());
  }

  static std::string text_of(const std::vector<int>& groups) {
    std::string text;
    for (const int g : groups) text += (text.empty() ? "" : " + ") + fixed(g, 0);
    return text;
  }

  void print_row_of(double slowdown, std::set<std::string>& declined) {
    Row row;
    for (int i = 0; i < setting_.repetitions; ++i) add_run(row, slowdown);
    declined.merge(row.declined);
    std::string splits;
    for (const auto& [split, times] : row.splits) {
      splits += (splits.empty() ? "" : ", ") + split;
      if (row.splits.size() > 1) splits += " (" + fixed(times, 0) + " times)";
    }
    const auto spread = [](const std::vector<double>& values, int digits) {
      return values.empty() ? "" : experiments::text_of(spread_of(values), digits);
    };
    print_row({slowdown == 1 ? "as fast" : fixed(slowdown, 0) + " times slower", splits,
               spread(row.predicted, 1), spread(row.measured, 1), spread(row.errors, 1),
               spread(row.halves, 1), spread(row.alone, 1), spread(row.gains, 2),
               spread(row.gain_errors, 1)});
    std::fflush(stdout);
  }

  const Setting setting_;
  TrialConfig trial_;
  std::string weights_;  // of the first run
};

}  // namespace

void print_unequal(bool brief) {
  const Setting whole{
      {.num_hidden_layers = 4, .max_position_embeddings = 64}, 12, 12, 25, 5, {1, 2, 4, 24}};
  const Setting small{{.num_hidden_layers = 1, .hidden_size = 32, .max_position_embeddings = 8},
                      4,
                      4,
                      1,
                      1,
                      {2, 60}};
  Experiment(brief ? small : whole).print();
}

}  // namespace spillway::experiments

int main(int argc, char** argv) {
  spillway::experiments::print_unequal(argc > 1 && std::strcmp(argv[1], "--brief") == 0);
}
