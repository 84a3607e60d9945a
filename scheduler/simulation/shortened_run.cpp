#include "scheduler/simulation/shortened_run.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace spillway {
namespace {

using Jobs = std::vector<std::shared_ptr<const JobPlan>>;

const Program& training(const JobPlan& plan) {
  return *plan.programs[StepKind{.update = true, .evaluate = false, .train = true}.index()];
}

const Program& with_evaluation(const JobPlan& plan) {
  return *plan.programs[StepKind{.update = true, .evaluate = true, .train = true}.index()];
}

/// Evaluations of a job that has committed `steps` steps and starts no other.
std::int64_t evaluations(const JobPlan& plan, std::int64_t steps) {
  if (!plan.evaluates) return 0;
  const std::int64_t between = plan.eval_steps > 0 && steps > 0 ? (steps - 1) / plan.eval_steps : 0;
  return between + (steps == plan.max_steps ? 1 : 0);
}

/// The cost of a run except its fixed part, in seconds of compute.
struct Work {
  double steps_s = 0, evaluations_s = 0;
};

Work work_of(const Jobs& jobs, const std::vector<std::int64_t>& steps) {
  Work work;
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    const double step_s = training(*jobs[j]).compute_s;
    work.steps_s += static_cast<double>(steps[j]) * step_s;
    if (!jobs[j]->evaluates) continue;
    work.evaluations_s += static_cast<double>(evaluations(*jobs[j], steps[j])) *
                          (with_evaluation(*jobs[j]).compute_s - step_s);
  }
  return work;
}

double num_ops(const Jobs& jobs) {
  double ops = 0;
  for (const auto& job : jobs) {
    const auto step = static_cast<double>(training(*job).ops.size());
    ops += step * static_cast<double>(job->max_steps);
    if (!job->evaluates) continue;
    const auto evaluation = static_cast<double>(with_evaluation(*job).ops.size()) - step;
    ops += evaluation * static_cast<double>(evaluations(*job, job->max_steps));
  }
  return ops;
}

Jobs shortened(const Jobs& jobs, const RunLength& length) {
  Jobs shorter;
  for (const auto& job : jobs) shorter.push_back(length.shorten(job));
  return shorter;
}

/// A simulated run and its share of the whole.
struct Sample {
  RunTotals totals;
  Work work;
};

Sample sample(const Jobs& jobs, const RunLength& length,
              const std::function<RunTotals(const RunLength&)>& simulate) {
  Sample made{.totals = simulate(length)};
  made.work = work_of(shortened(jobs, length), made.totals.steps);
  return made;
}

/// The last step of a job that reaches `steps` in a run of this length.
std::int64_t whole_steps(const JobPlan& job, const RunLength& length, std::int64_t steps) {
  if (steps == length.steps(job.max_steps)) return job.max_steps;
  return std::llround(static_cast<double>(steps) / (length.share * length.times));
}

/// How many times the difference of two samples fits into the rest of the whole run.
double times(double whole, double from, double to) {
  return to > from ? (whole - from) / (to - from) : 0;
}

/// Extrapolates a total of the whole run from three runs.
class Extrapolation {
 public:
  Extrapolation(double steps, double evaluations) : steps_(steps), evaluations_(evaluations) {}
  double operator()(double one, double twice, double evaluated) const {
    return std::max(0.0, twice + (twice - one) * (steps_ - 1) + (evaluated - twice) * evaluations_);
  }
  template <typename Count>
  void add(Count DeviceCounters::*member, DeviceCounters& whole, const DeviceCounters& one,
           const DeviceCounters& twice, const DeviceCounters& evaluated) const {
    const double value =
        (*this)(static_cast<double>(one.*member), static_cast<double>(twice.*member),
                static_cast<double>(evaluated.*member));
    if constexpr (std::is_integral_v<Count>) {
      whole.*member = static_cast<Count>(std::llround(value));
    } else {
      whole.*member = value;
    }
  }

 private:
  const double steps_, evaluations_;  // number of differences in the whole run
};

DeviceCounters whole_of(const Extrapolation& whole, const DeviceCounters& one,
                        const DeviceCounters& twice, const DeviceCounters& evaluated) {
  DeviceCounters counters;
  for (auto member :
       {&DeviceCounters::ops, &DeviceCounters::loads, &DeviceCounters::prefetches,
        &DeviceCounters::evictions, &DeviceCounters::moves, &DeviceCounters::kept_graphs}) {
    whole.add(member, counters, one, twice, evaluated);
  }
  for (auto member : {&DeviceCounters::h2d_bytes, &DeviceCounters::d2h_bytes,
                      &DeviceCounters::h2d_weight_bytes, &DeviceCounters::h2d_shared_bytes}) {
    whole.add(member, counters, one, twice, evaluated);
  }
  for (auto member : {&DeviceCounters::busy_s, &DeviceCounters::copy_s, &DeviceCounters::hidden_s,
                      &DeviceCounters::stall_s}) {
    whole.add(member, counters, one, twice, evaluated);
  }
  for (const DeviceCounters* each : {&one, &twice, &evaluated}) {
    counters.peak_bytes = std::max(counters.peak_bytes, each->peak_bytes);
    counters.activation_peak_bytes =
        std::max(counters.activation_peak_bytes, each->activation_peak_bytes);
    counters.short_of_room |= each->short_of_room;
  }
  return counters;
}

}  // namespace

std::int64_t RunLength::steps(std::int64_t of) const {
  if (share >= 1) return of;
  constexpr double kRounding = 1e-9;
  const auto fewer =
      static_cast<std::int64_t>(std::ceil(static_cast<double>(of) * share * (1 - kRounding)));
  return std::min(of, std::max<std::int64_t>(1, fewer) * times);
}

std::shared_ptr<const JobPlan> RunLength::shorten(
    const std::shared_ptr<const JobPlan>& plan) const {
  if (share >= 1 || !plan) return plan;
  auto shorter = std::make_shared<JobPlan>(*plan);
  shorter->max_steps = steps(plan->max_steps);
  shorter->eval_steps = evaluates_midway ? std::max<std::int64_t>(1, shorter->max_steps / 2) : 0;
  return shorter;
}

RunTotals simulate_shortened(const Jobs& jobs, std::int64_t first_rung, double most_ops,
                             const std::function<RunTotals(const RunLength&)>& simulate) {
  const auto is_new = [](const auto& job) { return job && job->first_step == 0; };
  if (!std::ranges::all_of(jobs, is_new)) return simulate({});
  const bool evaluates = std::ranges::any_of(
      jobs, [](const auto& job) { return job->evaluates && job->eval_steps > 0; });
  // The three runs together: once, twice, and twice with evaluations.
  double share = most_ops / num_ops(jobs) / (evaluates ? 5 : 3);
  if (first_rung > 0) {
    const auto rung = std::max(1.0, std::floor(share * static_cast<double>(first_rung)));
    share = rung / static_cast<double>(first_rung);
  }
  if (most_ops >= num_ops(jobs) || share > 0.5) return simulate({});
  const Sample one = sample(jobs, {.share = share}, simulate);
  const RunLength twice_as_long{.share = share, .times = 2};
  const Sample twice = sample(jobs, twice_as_long, simulate);
  if (twice.work.steps_s <= one.work.steps_s) return simulate({});
  const Sample evaluated =
      evaluates ? sample(jobs, {.share = share, .times = 2, .evaluates_midway = true}, simulate)
                : twice;

  RunTotals whole;
  double num_steps = 0, num_simulated = 0;
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    whole.steps.push_back(whole_steps(*jobs[j], twice_as_long, twice.totals.steps[j]));
    num_steps += static_cast<double>(whole.steps.back());
    num_simulated += static_cast<double>(one.totals.steps[j] + twice.totals.steps[j]);
    if (evaluates) num_simulated += static_cast<double>(evaluated.totals.steps[j]);
  }
  const Work work = work_of(jobs, whole.steps);
  const Extrapolation extrapolate(
      times(work.steps_s, one.work.steps_s, twice.work.steps_s),
      times(work.evaluations_s, twice.work.evaluations_s, evaluated.work.evaluations_s));
  whole.simulated_share = std::min(1.0, num_simulated / std::max(1.0, num_steps));
  whole.wall_s = extrapolate(one.totals.wall_s, twice.totals.wall_s, evaluated.totals.wall_s);
  for (const Sample* each : {&one, &twice, &evaluated}) {
    whole.counters.host_peak = std::max(whole.counters.host_peak, each->totals.counters.host_peak);
  }
  for (std::size_t d = 0; d < one.totals.counters.devices.size(); ++d) {
    whole.counters.devices.push_back(whole_of(extrapolate, one.totals.counters.devices[d],
                                              twice.totals.counters.devices[d],
                                              evaluated.totals.counters.devices[d]));
  }
  return whole;
}

}  // namespace spillway
