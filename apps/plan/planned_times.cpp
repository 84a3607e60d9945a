#include "apps/plan/planned_times.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

namespace spillway {
namespace {

/// Seconds of work by the program of a step.
struct ProgramWork {
  double training_s = 0, update_s = 0, evaluation_s = 0;
  bool committed = false, evaluated = false;  // the trace has all of it
};

using Programs = std::map<std::pair<JobId, std::int64_t>, ProgramWork>;

Programs programs_in(const std::vector<TraceSpan>& trace) {
  Programs programs;
  for (const TraceSpan& span : trace) {
    ProgramWork& work = programs[{span.job, span.step}];
    const double seconds = span.finished_s - span.started_s;
    const std::string_view name = span.name;
    if (span.track == TraceSpan::Track::compute) {
      (name.starts_with("evaluate") ? work.evaluation_s : work.training_s) += seconds;
    } else if (span.track == TraceSpan::Track::host_pool) {
      if (name == "update") work.update_s += seconds;
      work.committed |= name == "commit";
      work.evaluated |= name == "finish evaluation";
    }
  }
  return programs;
}

/// The mean of a member over the programs that `counts`.
template <typename Counts>
std::optional<double> mean(const Programs& programs, double ProgramWork::*member,
                           const Counts& counts) {
  double sum = 0, num = 0;
  for (const auto& [step, work] : programs) {
    if (!counts(work)) continue;
    sum += work.*member;
    ++num;
  }
  return num > 0 ? std::optional(sum / num) : std::nullopt;
}

}  // namespace

PlannedTimes times_of(const PlannedRun& run, const RunResult& result) {
  const Programs programs = programs_in(result.trace);
  const auto trains = [](const ProgramWork& work) { return work.committed; };
  const auto updates = [](const ProgramWork& work) { return work.committed && work.update_s > 0; };
  PlannedTimes times{.training_s = mean(programs, &ProgramWork::training_s, trains).value_or(0),
                     .update_s = mean(programs, &ProgramWork::update_s, updates).value_or(0),
                     .evaluation_s = mean(programs, &ProgramWork::evaluation_s,
                                          [](const auto& work) { return work.evaluated; })};
  double steps = 0, samples = 0, tokens = 0, epoch = 0;
  for (std::size_t t = 0; t < run.rows.size(); ++t) {
    const PlannedRow& row = run.rows[t];
    if (row.misfit) continue;
    const auto trained = static_cast<double>(row.steps * row.train.batch_size);
    steps += static_cast<double>(row.steps);
    samples += trained;
    tokens += trained * static_cast<double>(run.trials[t].config.tokens_per_sample());
    epoch += static_cast<double>(row.samples);
  }
  if (steps <= 0 || result.wall_s <= 0) return times;
  times.step_s = result.wall_s / steps;
  times.samples_per_s = samples / result.wall_s;
  if (tokens > 0) times.tokens_per_s = tokens / result.wall_s;
  times.epoch_s = epoch / times.samples_per_s;
  return times;
}

}  // namespace spillway
