#include <cmath>
#include <cstdio>
#include <random>
#include <string>
#include <string_view>

#include "experiments/elastic_replay/workload.h"
#include "experiments/support/shard_chain.h"
#include "experiments/support/shared_run.h"
#include "experiments/support/spread.h"

/// Replays a published cluster run with the engine in the virtual shell, under several allocators.
namespace spillway::experiments {
namespace {

constexpr int kDevices = 8;
constexpr int kVirtualNodes = 8;
constexpr double kShrinkS = 1.2;  // published: 0.08 to 1.2

struct Variant {
  const char* name;
  std::string_view allocator, policy;
  bool knows_scaling;     ///< false: the speed on one lane is known, the rest is learned during
                          ///< training
  bool growth_starts_up;  ///< devices that join a job first go through its start-up
};
constexpr Variant kVariants[]{{"priority", "priority", "lrtf", false, true},
                              {"wfs", "wfs", "lrtf", false, true},
                              {"fill, lrtf", "fill", "lrtf", false, true},
                              {"fill, srtf", "fill", "srtf", false, true},
                              {"fill, srtf, scaling known", "fill", "srtf", true, true},
                              {"fill, srtf, lanes join at once", "fill", "srtf", false, false}};

/// A step that takes `step_s(lanes)` seconds, whichever lane has most groups.
std::shared_ptr<const JobPlan> plan_of(double step_s, int lanes, std::int64_t steps) {
  const JobShape shape{.virtual_nodes = kVirtualNodes,
                       .groups = kVirtualNodes,
                       .lane_groups = split_groups(kVirtualNodes, lanes),
                       .max_steps = steps};
  return chain_job({{0, step_s / shape.lane_groups.front()}}, shape, /*elements=*/1024);
}

/// The same, but the first step takes as long as the job's start-up.
std::shared_ptr<const JobPlan> plan_of(double step_s, double start_up_s, int lanes,
                                       std::int64_t steps) {
  const std::size_t first = StepKind{.update = false, .evaluate = false, .train = true}.index();
  auto plan = std::make_shared<JobPlan>(*plan_of(step_s, lanes, steps));
  plan->programs[first] = plan_of(start_up_s, lanes, steps)->programs[first];
  return plan;
}

ElasticJob job_of(const ReplayJob& job, const Variant& variant, double lane_step_s) {
  const double lane_s = (job.service_s - job.start_up_s) / job.speed(1);
  const auto steps = std::max<std::int64_t>(1, std::llround(lane_s / lane_step_s));
  const bool starts_up = job.start_up_s > 0;
  ElasticJob elastic{.arrival_s = job.arrival_s,
                     .priority = job.priority,
                     .growth_s = variant.growth_starts_up ? job.start_up_s : 0,
                     .shrink_s = variant.growth_starts_up ? kShrinkS : 0};
  for (int lanes = 1; lanes <= job.demand; ++lanes) {
    const double speed = job.speed(lanes) / job.speed(1);
    const double step_s = lane_s / static_cast<double>(steps) / speed;
    elastic.plans.push_back(starts_up ? plan_of(step_s, job.start_up_s, lanes, steps + 1)
                                      : plan_of(step_s, lanes, steps));
    if (lanes > 1 && !variant.knows_scaling) continue;
    for (int i = 0; i < kStepsToMeasure; ++i) elastic.speed.observe(lanes, 1 / step_s);
  }
  return elastic;
}

struct Figures {
  double makespan_s, median_jct_s, mean_jct_s, median_queue_s, given, busy;
  int resizes;
};

template <typename Get>
std::vector<double> over(const auto& jobs, const Get& get) {
  std::vector<double> values;
  for (const auto& job : jobs) values.push_back(get(job));
  return values;
}

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

Figures replay(const std::vector<ReplayJob>& jobs, const Variant& variant, double lane_step_s) {
  std::vector<ElasticJob> elastic;
  for (const ReplayJob& job : jobs) elastic.push_back(job_of(job, variant, lane_step_s));
  EngineConfig engine{
      .host_budget = 1_GiB * 1024, .policy = make_policy(variant.policy), .double_buffer = false};
  engine.device_budgets.assign(kDevices, 1_GiB);
  const SharedOutcome outcome =
      run({.engine = engine,
           .costs = {.copy_bytes_per_s = 1e300, .copy_latency_s = 0, .admission_s = 0},
           .allocator = variant.allocator},
          elastic);
  const auto jct = over(outcome.jobs, [](const auto& job) { return job.ended_s - job.arrived_s; });
  const auto queue =
      over(outcome.jobs, [](const auto& job) { return job.started_s - job.arrived_s; });
  return {outcome.makespan_s,  spread_of(jct).median, mean_of(jct),   spread_of(queue).median,
          outcome.given_share, outcome.busy_share,    outcome.resizes};
}

Figures measured(const std::vector<ReplayJob>& jobs, double ReplayJob::*jct_s,
                 double ReplayJob::*queue_s, double given) {
  double makespan_s = 0;
  for (const ReplayJob& job : jobs) makespan_s = std::max(makespan_s, job.arrival_s + job.*jct_s);
  const auto jct = over(jobs, [&](const auto& job) { return job.*jct_s; });
  const auto queue = over(jobs, [&](const auto& job) { return job.*queue_s; });
  return {makespan_s, spread_of(jct).median, mean_of(jct), spread_of(queue).median, given, 0, 0};
}

/// "6495 (-45.6 %)".
std::string against(double value, double base) {
  return fixed(value, 0) + " (" + fixed(100 * (value / base - 1), 1) + " %)";
}

void print_figures(const std::string& name, const Figures& figures, const Figures& base,
                   double bound_s) {
  const bool was_run = figures.busy > 0;
  print_row(
      {name, against(figures.makespan_s, base.makespan_s), fixed(figures.makespan_s / bound_s, 3),
       against(figures.median_jct_s, base.median_jct_s),
       against(figures.mean_jct_s, base.mean_jct_s), fixed(figures.median_queue_s, 0),
       fixed(100 * figures.given, 1) + " %", was_run ? fixed(100 * figures.busy, 1) + " %" : "",
       was_run ? std::to_string(figures.resizes) : ""});
}

void print_published_workload(const std::vector<ReplayJob>& jobs, double lane_step_s) {
  const double bound_s = shortest_makespan_s(jobs, kDevices);
  double ends_s = 0;
  for (const ReplayJob& job : jobs) ends_s = std::max(ends_s, job.arrival_s + job.service_s);
  std::printf(
      "No schedule is shorter than %.0f s; the last job to end alone, on all that it asks "
      "for from its arrival, ends at %.0f s.\n\n",
      bound_s, ends_s);
  print_head({"", "makespan, s", "over the bound", "median JCT, s", "mean JCT, s",
              "median queueing, s", "devices given", "devices busy", "resizes"});
  const Figures published =
      measured(jobs, &ReplayJob::priority_jct_s, &ReplayJob::priority_queue_s, 0.719);
  print_figures("published, Priority", published, published, bound_s);
  print_figures("published, WFS",
                measured(jobs, &ReplayJob::wfs_jct_s, &ReplayJob::wfs_queue_s, 0.979), published,
                bound_s);
  const Figures base = replay(jobs, kVariants[0], lane_step_s);
  for (const Variant& variant : kVariants) {
    print_figures(variant.name, replay(jobs, variant, lane_step_s), base, bound_s);
  }
}

/// Jobs of the published run in random order, with Poisson arrivals.
std::vector<ReplayJob> draw(const std::vector<ReplayJob>& jobs, int num_jobs, double an_hour,
                            unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<std::size_t> which(0, jobs.size() - 1);
  std::exponential_distribution<double> gap_s(an_hour / 3600);
  std::vector<ReplayJob> drawn;
  double now_s = 0;
  for (int i = 0; i < num_jobs; ++i) {
    drawn.push_back(jobs[which(random)]);
    drawn.back().arrival_s = now_s += gap_s(random);
  }
  return drawn;
}

void print_drawn_workloads(const std::vector<ReplayJob>& jobs, bool brief) {
  print_head({"", "jobs an hour", "makespan over the bound", "median JCT, priority = 1",
              "mean JCT, priority = 1"});
  for (const double an_hour : {12.0, 20.0, 30.0}) {
    for (const Variant& variant : kVariants) {
      std::vector<double> ratios, medians, means;
      for (unsigned seed = 1; seed <= (brief ? 1 : 20); ++seed) {
        const auto drawn = draw(jobs, brief ? 8 : 40, an_hour, seed);
        const Figures base = replay(drawn, kVariants[0], brief ? 60 : 10);
        const Figures figures = replay(drawn, variant, brief ? 60 : 10);
        ratios.push_back(figures.makespan_s / shortest_makespan_s(drawn, kDevices));
        medians.push_back(figures.median_jct_s / base.median_jct_s);
        means.push_back(figures.mean_jct_s / base.mean_jct_s);
      }
      print_row({variant.name, fixed(an_hour, 0), text_of(spread_of(ratios), 3),
                 text_of(spread_of(medians), 2), text_of(spread_of(means), 2)});
      std::fflush(stdout);
    }
  }
}

}  // namespace
}  // namespace spillway::experiments

int main(int argc, char** argv) {
  using namespace spillway::experiments;
  const bool brief = argc > 1 && std::string_view(argv[1]) == "--brief";
  const auto jobs = read_workload(SPILLWAY_REPLAY_WORKLOAD);
  std::printf("## The published workload: 20 jobs on 8 devices\n\n");
  print_published_workload(jobs, brief ? 60 : 2);
  std::printf("\n## Drawn from its jobs: 40 on 8 devices, 20 workloads each\n\n");
  print_drawn_workloads(jobs, brief);
  return 0;
}
