#include <cstdio>
#include <string_view>

#include "experiments/support/shard_chain.h"
#include "experiments/support/shared_run.h"
#include "experiments/support/spread.h"
#include "scheduler/simulation/step_cost.h"

/// Four jobs on one to eight devices, with and without lanes that fill the devices beyond four.
namespace spillway::experiments {
namespace {

constexpr int kJobs = 4, kShards = 10, kVirtualNodes = 8, kMostDevices = 8;
// Hydra, 4 models, speed-up over model parallelism on the same number of devices; 0: not published.
constexpr double kPublished[kMostDevices + 1]{0, 0, 1.85, 0, 3.7, 0, 3.65, 0, 3.65};

struct Setting {
  double copy_s;  ///< of a shard's weights
  int steps;
};

/// Plans on 1, 2, ... lanes. `unit_s`: of a unit on one lane.
ElasticJob job_of(int most_lanes, double unit_s, int steps) {
  ElasticJob job;
  const double op_s = unit_s / kVirtualNodes;
  for (int lanes = 1; lanes <= most_lanes; ++lanes) {
    const JobShape shape{.virtual_nodes = kVirtualNodes,
                         .groups = kVirtualNodes,
                         .lane_groups = split_groups(kVirtualNodes, lanes),
                         .max_steps = steps};
    job.plans.push_back(chain_job(std::vector<ShardTime>(kShards, {op_s, op_s}), shape));
  }
  return job;
}

/// As a session does it.
SpeedCurve speed_of(const ElasticJob& job, const EngineConfig& engine, const VirtualCosts& costs) {
  const auto step_s = [&](int lanes) -> std::optional<double> {
    JobPlan priced = *job.plans[at(lanes - 1)];
    priced.max_steps = kPricedSteps;
    const auto cost = step_cost(std::make_shared<JobPlan>(priced), engine, costs);
    return cost ? std::optional(cost->step_s) : std::nullopt;
  };
  const auto most = static_cast<int>(std::min(job.plans.size(), engine.device_budgets.size()));
  return predicted_speed(useful_lanes(kVirtualNodes, most), most, step_s);
}

SharedOutcome run_on(int num_devices, std::vector<ElasticJob> jobs, bool predicts,
                     const Setting& setting) {
  Bytes unit = 0;
  for (const auto& plan : jobs[0].plans) unit = std::max(unit, plan->needed_budget);
  EngineConfig engine{.host_budget = 1_GiB * 1024, .policy = make_policy("lrtf")};
  engine.device_budgets.assign(at(num_devices), 3 * unit);
  const double rate =
      setting.copy_s > 0 ? static_cast<double>(kShardBytes) / setting.copy_s : 1e300;
  const VirtualCosts costs{.copy_bytes_per_s = rate, .copy_latency_s = 0, .admission_s = 0};
  for (ElasticJob& job : jobs) {
    if (predicts) {
      job.speed = speed_of(job, engine, costs);
    } else {
      job.speed.predict(1, 1 / job.plans[0]->step_s);
    }
  }
  return run({.engine = engine, .costs = costs, .allocator = "fill", .decide_at_commits = true},
             jobs);
}

std::vector<ElasticJob> equal_jobs(int most_lanes, const Setting& setting) {
  return std::vector<ElasticJob>(kJobs, job_of(most_lanes, 1, setting.steps));
}

/// Two limited by compute, which more lanes make faster, and two limited by copies.
std::vector<ElasticJob> different_jobs(const Setting& setting) {
  const ElasticJob computes = job_of(kVirtualNodes, 1, setting.steps),
                   copies = job_of(kVirtualNodes, setting.copy_s, 4 * setting.steps);
  return {copies, computes, copies, computes};
}

double mean_end_s(const SharedOutcome& outcome) {
  double sum = 0;
  for (const JobTimes& job : outcome.jobs) sum += job.ended_s;
  return sum / static_cast<double>(outcome.jobs.size());
}

void print_table(const Setting& setting) {
  print_head({"devices", "speed-up, one lane a job", "published", "lanes fill, speeds learned",
              "of linear", "resizes", "lanes fill, speeds predicted", "of linear", "resizes"});
  const double alone_s = run_on(1, equal_jobs(1, setting), false, setting).makespan_s;
  for (int devices = 1; devices <= kMostDevices; ++devices) {
    const SharedOutcome plain = run_on(devices, equal_jobs(1, setting), false, setting);
    std::vector<std::string> row{std::to_string(devices), fixed(alone_s / plain.makespan_s, 2),
                                 kPublished[devices] > 0 ? fixed(kPublished[devices], 2) : ""};
    for (const bool predicts : {false, true}) {
      const SharedOutcome filled =
          run_on(devices, equal_jobs(kVirtualNodes, setting), predicts, setting);
      const double speed_up = alone_s / filled.makespan_s;
      row.push_back(fixed(speed_up, 2));
      row.push_back(fixed(100 * speed_up / devices, 1) + " %");
      row.push_back(std::to_string(filled.resizes));
    }
    print_row(row);
  }
}

void print_different(const Setting& setting) {
  print_head({"devices", "mean end, s, speeds learned", "predicted", "last end, s, speeds learned",
              "predicted", "resizes, speeds learned", "predicted"});
  for (int devices = kJobs + 1; devices <= kMostDevices; ++devices) {
    const SharedOutcome learned = run_on(devices, different_jobs(setting), false, setting),
                        predicted = run_on(devices, different_jobs(setting), true, setting);
    print_row({std::to_string(devices), fixed(mean_end_s(learned), 1),
               fixed(mean_end_s(predicted), 1), fixed(learned.makespan_s, 1),
               fixed(predicted.makespan_s, 1), std::to_string(learned.resizes),
               std::to_string(predicted.resizes)});
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
  for (const int length : {steps, steps / 4}) {
    std::printf("\n## Two jobs of %d steps limited by compute, two of %d limited by copies\n\n",
                length, 4 * length);
    print_different({.copy_s = 0.25, .steps = length});
  }
  return 0;
}
