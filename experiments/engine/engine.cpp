#include "scheduler/engine/engine.h"

#include <cstdio>
#include <ctime>
#include <string_view>

#include "experiments/engine/live_bytes.h"
#include "experiments/support/shard_chain.h"
#include "experiments/support/spread.h"
#include "scheduler/simulation/virtual_shell.h"

/// Events per second of the engine under a virtual clock, and bytes per job.
namespace spillway::experiments {
namespace {

/// Jobs of 8 shards and 4 virtual nodes that spill.
struct Case {
  int num_jobs, num_devices;
  int memory = 2;  ///< of a device, in units of the largest unit
  std::int64_t shard_elements = kShardElements;
  bool equal = false;  ///< all jobs take the same time
};

constexpr Case kCases[]{{1, 1},
                        {8, 4},
                        {64, 8},
                        {100, 10},
                        {1000, 10},
                        {50, 100},
                        {120, 100},
                        {1000, 100},
                        {1000, 100, 10},
                        {1000, 100, 2, kShardElements, true},
                        {1000, 1},
                        {1000, 1, 40},
                        {1000, 1, 40, 64, true}};

struct Jobs {
  std::vector<std::shared_ptr<const JobPlan>> plans;
  EngineConfig config;
};

Jobs make_jobs(const Case& what, int num_steps) {
  Jobs jobs;
  for (int j = 0; j < what.num_jobs; ++j) {
    const double time_s = what.equal ? 1e-3 : 1e-3 * (1 + 0.001 * j);
    jobs.plans.push_back(chain_job(std::vector<ShardTime>(8, {time_s, 3 * time_s}), num_steps, 4));
  }
  const Bytes budget = jobs.plans[0]->needed_budget * static_cast<Bytes>(what.memory);
  jobs.config = {.device_budgets = std::vector<Bytes>(at(what.num_devices), budget),
                 .host_budget = ~Bytes{0} / 2,
                 .policy = make_policy("lrtf")};
  return jobs;
}

struct Timing {
  double events = 0;
  double seconds = 0;  ///< of CPU time
};

Timing run(const Jobs& jobs) {
  VirtualShell shell(jobs.config, {});
  for (std::size_t j = 0; j < jobs.plans.size(); ++j) shell.submit(JobId(j), jobs.plans[j]);
  Timing timing;
  const std::clock_t begin = std::clock();
  while (shell.advance()) ++timing.events;
  timing.seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  return timing;
}

void print_speed(int num_runs, double num_events, int most_jobs) {
  print_head({"jobs", "devices", "shard, KiB", "device memory, units", "events", "events/s",
              "least", "most"});
  for (const Case& what : kCases) {
    if (what.num_jobs > most_jobs) continue;
    const double events_a_step = run(make_jobs(what, 1)).events;
    const int num_steps = 1 + static_cast<int>(num_events / events_a_step);
    const Jobs jobs = make_jobs(what, num_steps);
    std::vector<double> rates;
    Timing timing;
    for (int i = 0; i < num_runs; ++i) {
      timing = run(jobs);
      rates.push_back(timing.events / timing.seconds);
    }
    const Spread spread = spread_of(rates);
    print_row({with_commas(what.num_jobs) + (what.equal ? ", equal" : ""),
               with_commas(what.num_devices),
               fixed(static_cast<double>(what.shard_elements) / 256, 2),
               std::to_string(what.memory), with_commas(timing.events), with_commas(spread.median),
               with_commas(spread.least), with_commas(spread.most)});
    std::fflush(stdout);
  }
}

/// The bytes that remain allocated after `make`.
template <typename Make>
double bytes_of(const Make& make) {
  const std::size_t before = live_bytes();
  const auto kept = make();
  return static_cast<double>(live_bytes() - before);
}

/// For `num_jobs` equal jobs on 10 devices: bytes of engine and shell after some events. All jobs
/// share one plan.
double bytes_a_job(int num_jobs, Bytes host_budget, int events_a_job) {
  Jobs jobs = make_jobs({1, 10}, 2);
  jobs.config.host_budget = host_budget;
  const double all = bytes_of([&] {
    auto shell = std::make_unique<VirtualShell>(jobs.config, VirtualCosts{});
    for (int j = 0; j < num_jobs; ++j) shell->submit(JobId(j), jobs.plans[0]);
    for (int event = 0; event < events_a_job * num_jobs; ++event) shell->advance();
    return shell;
  });
  return all / num_jobs;
}

void print_memory(int num_jobs) {
  const Bytes one_home = make_jobs({1, 10}, 2).plans[0]->layout.home_bytes;
  print_head({"", "bytes"});
  print_row({"a waiting job", with_commas(bytes_a_job(num_jobs, one_home, 0))});
  print_row({"a running job", with_commas(bytes_a_job(num_jobs, ~Bytes{0} / 2, 100))});
  print_row({"its plan, which equal jobs may share", with_commas(bytes_of([] {
               return make_jobs({1, 10}, 2);
             }))});
}

}  // namespace
}  // namespace spillway::experiments

int main(int argc, char** argv) {
  using namespace spillway::experiments;
  const bool brief = argc > 1 && std::string_view(argv[1]) == "--brief";
  std::printf("## Events in a second of CPU time\n\n");
  print_speed(brief ? 1 : 5, brief ? 1 : 500000, brief ? 120 : 1000);
  std::printf("\n## Memory\n\n");
  print_memory(brief ? 20 : 1000);
  return 0;
}
