#include <cstdio>
#include <random>
#include <string_view>

#include "experiments/support/shard_chain.h"
#include "experiments/support/spread.h"
#include "scheduler/simulation/virtual_shell.h"

/// Makespan relative to the lower bound for every policy, on the instances of Hydra's simulation.
namespace spillway::experiments {
namespace {

constexpr int kShards = 10;
constexpr int kUnitsAStep = 2 * kShards - 1;

struct Instance {
  int num_models, num_devices;
  bool heterogeneous;
};

using Jobs = std::vector<std::shared_ptr<const JobPlan>>;

/// Homogeneous: 2,000 units of one second each. Heterogeneous: 100 to 10,000 units, and the time
/// of each shard from 0.1 s to 1.9 s, uniformly.
Jobs make_jobs(const Instance& instance, unsigned seed, int scale) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> units(100, 10000);
  std::uniform_real_distribution<double> seconds(0.1, 1.9);
  Jobs jobs;
  for (int j = 0; j < instance.num_models; ++j) {
    std::vector<ShardTime> shards(kShards);
    int num_units = 2000;
    if (instance.heterogeneous) {
      num_units = units(random);
      for (ShardTime& shard : shards) shard = {seconds(random), seconds(random)};
    }
    jobs.push_back(chain_job(shards, std::max(1, num_units / kUnitsAStep / scale)));
  }
  return jobs;
}

/// A lower bound: a model is a chain, and devices compute one unit at a time.
double lower_bound_s(const Jobs& jobs, int num_devices) {
  double longest = 0, total = 0;
  for (const auto& job : jobs) {
    longest = std::max(longest, compute_s(*job));
    total += compute_s(*job);
  }
  return std::max(longest, total / num_devices);
}

struct Setting {
  bool double_buffer;  ///< claim a unit ahead and load its weights
  double copy_s;       ///< of a shard's weights; 0: everything except compute takes no time
};

double makespan_s(const Jobs& jobs, int num_devices, std::string_view policy,
                  const Setting& setting) {
  EngineConfig config{.host_budget = 1_GiB * 1024,
                      .policy = make_policy(policy),
                      .double_buffer = setting.double_buffer};
  // Room for the running unit, the next one, and sums on their way home.
  config.device_budgets.assign(at(num_devices), 3 * jobs[0]->needed_budget);
  const double rate =
      setting.copy_s > 0 ? static_cast<double>(kShardBytes) / setting.copy_s : 1e300;
  VirtualShell shell(config, {.copy_bytes_per_s = rate, .copy_latency_s = 0, .admission_s = 0});
  for (std::size_t j = 0; j < jobs.size(); ++j) shell.submit(JobId(j), jobs[j]);
  shell.run();
  return shell.now_s();
}

void print_table(const Setting& setting, int num_seeds, int scale) {
  std::vector<std::string> head{"models / devices", "models"};
  head.insert(head.end(), kPolicyNames.begin(), kPolicyNames.end());
  print_head(head);
  for (const bool heterogeneous : {false, true}) {
    for (const auto& [models, devices] : {std::pair{8, 4}, {8, 8}, {64, 4}, {64, 8}}) {
      const Instance instance{models, devices, heterogeneous};
      std::vector<std::vector<double>> ratios(kPolicyNames.size());
      for (int seed = 1; seed <= (heterogeneous ? num_seeds : 1); ++seed) {
        const Jobs jobs = make_jobs(instance, static_cast<unsigned>(seed), scale);
        for (std::size_t p = 0; p < kPolicyNames.size(); ++p) {
          ratios[p].push_back(makespan_s(jobs, devices, kPolicyNames[p], setting) /
                              lower_bound_s(jobs, devices));
        }
      }
      std::vector<std::string> row{std::to_string(models) + " / " + std::to_string(devices),
                                   heterogeneous ? "heterogeneous" : "homogeneous"};
      for (const auto& values : ratios) row.push_back(text_of(spread_of(values), 3));
      print_row(row);
      std::fflush(stdout);
    }
  }
}

}  // namespace
}  // namespace spillway::experiments

int main(int argc, char** argv) {
  using namespace spillway::experiments;
  const bool brief = argc > 1 && std::string_view(argv[1]) == "--brief";
  const int num_seeds = brief ? 1 : 11, scale = brief ? 50 : 1;
  std::printf("## Copies take no time, nothing is chosen ahead\n\n");
  print_table({.double_buffer = false, .copy_s = 0}, num_seeds, scale);
  std::printf("\n## Copies take no time, a unit is chosen ahead\n\n");
  print_table({.double_buffer = true, .copy_s = 0}, num_seeds, scale);
  std::printf("\n## A copy of a shard takes 0.5 s, half of a mean unit; double buffer\n\n");
  print_table({.double_buffer = true, .copy_s = 0.5}, num_seeds, scale);
  return 0;
}
