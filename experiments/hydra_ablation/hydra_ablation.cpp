#include <cstdio>
#include <string_view>

#include "experiments/hydra_ablation/real_devices.h"
#include "experiments/hydra_ablation/variants.h"
#include "experiments/support/shard_chain.h"
#include "experiments/support/spread.h"
#include "scheduler/simulation/virtual_shell.h"

/// Hydra's ablation in the virtual shell and on real devices: the value of sharing devices and of
/// double buffering.
namespace spillway::experiments {
namespace {

constexpr int kModels = 16, kDevices = 8, kShards = 6;

struct Outcome {
  double seconds = 0, busy = 0, stall = 0;  ///< shares of all device time
  Bytes h2d_bytes = 0;
};

/// Compute, copies and memory of a setting.
struct Setting {
  ShardTime time;
  double copy_s;  ///< of a shard's weights
  double
      memory;  ///< of a device, in units of the largest unit: weights, gradient sums and boundaries
  int steps;
};

Outcome run(const Variant& variant, const Setting& setting) {
  const auto plan = chain_job(std::vector<ShardTime>(kShards, setting.time), setting.steps);
  const Bytes home = plan->layout.home_bytes;
  EngineConfig config{.host_budget = variant.shares ? kModels * home : home,
                      .policy = make_policy("lrtf"),
                      .double_buffer = variant.double_buffer};
  const double budget = setting.memory * static_cast<double>(plan->needed_budget);
  config.device_budgets.assign(kDevices, static_cast<Bytes>(budget));
  VirtualShell shell(config,
                     {.copy_bytes_per_s = static_cast<double>(kShardBytes) / setting.copy_s});
  for (int j = 0; j < kModels; ++j) shell.submit(JobId(j), plan);
  shell.run();
  Outcome outcome{.seconds = shell.now_s()};
  for (const DeviceCounters& device : snapshot_of(shell.engine()).devices) {
    outcome.busy += device.busy_s / (kDevices * outcome.seconds);
    outcome.stall += device.stall_s / (kDevices * outcome.seconds);
    outcome.h2d_bytes += device.h2d_weight_bytes;
  }
  return outcome;
}

void print_table(const ShardTime& time, double copy_s, int steps) {
  print_head({"", "device memory, units", "time", "published", "devices busy", "waiting for copies",
              "weights loaded, GiB"});
  for (const double memory : {3.0, 2.0, 1.5}) {
    const Setting setting{time, copy_s, memory, steps};
    const double full_s = run(kVariants[2], setting).seconds;
    for (const Variant& variant : kVariants) {
      const Outcome outcome = run(variant, setting);
      print_row({variant.name, fixed(memory, 1), fixed(outcome.seconds / full_s, 2),
                 fixed(variant.published, 2), fixed(100 * outcome.busy, 1) + " %",
                 fixed(100 * outcome.stall, 1) + " %",
                 fixed(static_cast<double>(outcome.h2d_bytes) / 1_GiB, 1)});
    }
  }
}

}  // namespace
}  // namespace spillway::experiments

int main(int argc, char** argv) {
  using namespace spillway::experiments;
  const bool brief = argc > 1 && std::string_view(argv[1]) == "--brief";
  const int steps = brief ? 2 : 100;
  std::printf("## Every unit takes 1 s, a copy of its weights 1 s\n\n");
  print_table({1, 1}, 1, steps);
  std::printf("\n## Forward takes 1 s, backward 3 s, a copy of weights 2 s, as the mean unit\n\n");
  print_table({1, 3}, 2, steps);
  std::printf("\n## On CPU devices, a copy of weights takes as long as the mean unit\n\n");
  print_real_devices(brief);
  return 0;
}
