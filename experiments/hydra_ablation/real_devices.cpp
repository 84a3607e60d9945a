#include "experiments/hydra_ablation/real_devices.h"

#include <array>
#include <cstdio>

#include "experiments/hydra_ablation/variants.h"
#include "experiments/support/spread.h"
#include "experiments/support/trained.h"

namespace spillway::experiments {
namespace {

constexpr std::size_t kNumVariants = std::size(kVariants), kFull = kNumVariants - 1;

struct Setting {
  GptConfig model;
  Bytes budget;
  int models, steps, repetitions;
};

std::vector<TrialConfig> trials_of(const Setting& setting) {
  std::vector<TrialConfig> trials;
  for (int i = 0; i < setting.models; ++i) {
    TrialConfig trial = gpt_trial(setting.model);
    trial.name += "-" + std::to_string(i);
    trial.train.virtual_nodes = 4;
    trial.train.max_steps = setting.steps;
    trial.train.order = OrderChoice::shard_major;
    trial.train.learning_rate = 1e-4 * (i + 1);
    trials.push_back(std::move(trial));
  }
  return trials;
}

SessionConfig session_of(const Setting& setting, const PilotCache& cache) {
  SessionConfig config{.pilot_cache = cache.path()};
  config.devices.assign(2, {.memory = setting.budget});
  return config;
}

/// The rate at which a mean shard of the full system loads in the time in which a mean unit
/// computes.
Bytes link_rate(const TrialPlan& plan) {
  const double units = 2.0 * plan.num_shards - 1;
  return static_cast<Bytes>(static_cast<double>(plan.shard_weights_bytes) / plan.num_shards /
                            (plan.compute_s_per_step / units));
}

double mean_busy(const RunResult& result) {
  double busy = 0;
  for (const DeviceResult& device : result.devices) busy += device.busy_share;
  return busy / static_cast<double>(result.devices.size());
}

void print_table(const std::array<std::vector<Trained>, kNumVariants>& runs) {
  print_head({"", "shards", "time", "simulated", "published, 8 devices", "devices busy, %",
              "copies hidden, %", "weights loaded, MiB"});
  for (std::size_t v = 0; v < kNumVariants; ++v) {
    const auto over_runs = [&](const auto& value) {
      std::vector<double> values;
      for (std::size_t i = 0; i < runs[v].size(); ++i) {
        values.push_back(value(runs[v][i], runs[kFull][i]));
      }
      return spread_of(values);
    };
    const RunResult& first = runs[v][0].result;
    print_row({kVariants[v].name, std::to_string(runs[v][0].plan.num_shards),
               text_of(over_runs([](const Trained& run, const Trained& full) {
                         return run.result.wall_s / full.result.wall_s;
                       }),
                       2),
               text_of(over_runs([](const Trained& run, const Trained& full) {
                         return run.simulated.wall_s / full.simulated.wall_s;
                       }),
                       2),
               fixed(kVariants[v].published, 2),
               text_of(over_runs([](const Trained& run, const Trained&) {
                         return 100 * mean_busy(run.result);
                       }),
                       1),
               text_of(over_runs([](const Trained& run, const Trained&) {
                         return 100 * run.result.copy_hidden_share.value_or(1);
                       }),
                       1),
               fixed(static_cast<double>(first.h2d_weight_bytes) / 1_MiB, 1)});
  }
}

}  // namespace

void print_real_devices(bool brief) {
  const Setting setting =
      brief ? Setting{{.num_hidden_layers = 3, .hidden_size = 32, .max_position_embeddings = 8},
                      1_MiB,
                      3,
                      2,
                      1}
            : Setting{{.num_hidden_layers = 6, .max_position_embeddings = 64}, 8_MiB, 8, 4, 3};
  const PilotCache cache("spillway_hydra_ablation");
  const auto trials = trials_of(setting);
  SessionConfig config = session_of(setting, cache);
  Session planner(config);
  const TrialPlan plan = planner.plan(planner.submit(trials[0]));
  for (DeviceConfig& device : config.devices) device.imitate.link_bytes_per_s = link_rate(plan);
  std::array<std::vector<Trained>, kNumVariants> runs;
  for (int i = 0; i < setting.repetitions; ++i) {
    for (std::size_t v = 0; v < kNumVariants; ++v) {
      config.double_buffer = kVariants[v].double_buffer;
      config.host_memory = kVariants[v].shares ? 4_GiB : plan.home_bytes;
      runs[v].push_back(train(config, trials));
    }
  }
  std::printf("- Models: %d GPTs of %d blocks, %d steps; training state of one: %s\n",
              setting.models, static_cast<int>(setting.model.num_hidden_layers), setting.steps,
              format_bytes(plan.training_state_bytes).c_str());
  std::printf("- Devices: 2 of %s, link: %s, full system: %d shards, %.1f s\n\n",
              format_bytes(setting.budget).c_str(),
              format_rate(config.devices[0].imitate.link_bytes_per_s).c_str(), plan.num_shards,
              runs[kFull][0].result.wall_s);
  print_table(runs);
}

}  // namespace spillway::experiments
