#include <cstdio>
#include <string_view>

#include "experiments/support/shard_chain.h"
#include "experiments/support/shared_run.h"
#include "experiments/support/spread.h"

/// Four jobs on one to eight devices, with and without lanes that fill the devices beyond four.
namespace spillway::experiments {
namespace {

constexpr int kJobs = 4, kShards = 10, kVirtualNodes = 8, kMostDevices = 8;
// Hydra, 4 models, speed-up over model parallelism on the same number of devices; 0: not published.
constexpr double kPublished[kMostDevices + 1]{0, 0, 1.85, 0, 3.7, 0, 3.65, 0, 3.65};

struct Setting {
  double copy_s;  ///< of a shard's weights; a unit of a job on one lane takes 1 s
  int steps;
};

/// Plans on 1, 2, ... lanes.
ElasticJob job_of(int most_lanes, int steps) {
  ElasticJob job;
  const double op_s = 1.0 / kVirtualNodes;
  for (int lanes = 1; lanes <= most_lanes; ++lanes) {
    const JobShape shape{.virtual_nodes = kVirtualNodes,
                         .groups = kVirtualNodes,
                         .lane_groups = split_groups(kVirtualNodes, lanes),
                         .max_steps = steps};
    job.plans.push_back(chain_job(std::vector<ShardTime>(kShards, {op_s, op_s}), shape));
  }
  for (int i = 0; i < kStepsToMeasure; ++i) job.speed.observe(1, 1 / job.plans[0]->step_s);
  return job;
}

SharedOutcome run_on(int num_devices, int most_lanes, const Setting& setting) {
  const std::vector<ElasticJob> jobs(kJobs, job_of(most_lanes, setting.steps));
  Bytes unit = 0;
  for (const auto& plan : jobs[0].plans) unit = std::max(unit, plan->needed_budget);
  EngineConfig engine{.host_budget = 1_GiB * 1024, .policy = make_policy("lrtf")};
  engine.device_budgets.assign(at(num_devices), 3 * unit);
  const double rate =
      setting.copy_s > 0 ? static_cast<double>(kShardBytes) / setting.copy_s : 1e300;
  return run({.engine = engine,
              .costs = {.copy_bytes_per_s = rate, .copy_latency_s = 0, .admission_s = 0},
              .allocator = "fill",
              .decide_at_commits = true},
             jobs);
}

void print_table(const Setting& setting) {
  print_head({"devices", "speed-up, one lane a job", "published", "speed-up, lanes fill",
              "of linear", "devices busy", "resizes"});
  const double alone_s = run_on(1, 1, setting).makespan_s;
  for (int devices = 1; devices <= kMostDevices; ++devices) {
    const SharedOutcome plain = run_on(devices, 1, setting);
    const SharedOutcome filled = run_on(devices, kVirtualNodes, setting);
    const double speed_up = alone_s / filled.makespan_s;
    print_row({std::to_string(devices), fixed(alone_s / plain.makespan_s, 2),
               kPublished[devices] > 0 ? fixed(kPublished[devices], 2) : "", fixed(speed_up, 2),
               fixed(100 * speed_up / devices, 1) + " %", fixed(100 * filled.busy_share, 1) + " %",
               std::to_string(filled.resizes)});
  }
}

}  // namespace
}  // namespace spillway::experiments

int main(int argc, char** argv) {
  using namespace spillway::experiments;
  const bool brief = argc > 1 && std::string_view(argv[1]) == "--brief";
  const int steps = brief ? 4 : 100;
  std::printf("## Copies take no time\n\n");
  print_table({.copy_s = 0, .steps = steps});
  std::printf("\n## A copy of a shard's weights takes 0.25 s, a quarter of a unit\n\n");
  print_table({.copy_s = 0.25, .steps = steps});
  std::printf("\n## A copy of a shard's weights takes 0.5 s, half of a unit\n\n");
  print_table({.copy_s = 0.5, .steps = steps});
  return 0;
}
