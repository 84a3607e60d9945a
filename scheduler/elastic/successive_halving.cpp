#include "scheduler/elastic/successive_halving.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <tuple>
#include <utility>

namespace spillway {

std::int64_t Rungs::from(std::int64_t step) const {
  std::int64_t rung = min_iter;
  while (rung < step) {
    if (rung > kNoStep / eta) return kNoStep;
    rung *= eta;
  }
  return rung;
}

void RungMeans::add(double loss, const Rungs& rungs) {
  sum += loss;
  ++step;
  if (step != rungs.from(step)) return;
  const std::int64_t before = means.empty() ? 0 : means.back().first;
  means.emplace_back(step, sum / static_cast<double>(step - before));
  sum = 0;
}

void SuccessiveHalving::enter(JobId job, std::int64_t step, std::int64_t max_steps) {
  trials_.push_back({.job = job, .step = step, .max_steps = max_steps, .losses = {}});
}

void SuccessiveHalving::enter_ended(const RungLosses& losses) {
  trials_.push_back(
      {.job = {}, .step = kNoStep, .max_steps = 0, .losses = {losses.begin(), losses.end()}});
}

const SuccessiveHalving::Trial& SuccessiveHalving::find(JobId job) const {
  const auto found = std::ranges::find(trials_, job, &Trial::job);
  assert(found != trials_.end());
  return *found;
}

SuccessiveHalving::Trial& SuccessiveHalving::find(JobId job) {
  return const_cast<Trial&>(std::as_const(*this).find(job));
}

void SuccessiveHalving::reach(JobId job, std::int64_t rung, double loss) {
  find(job).losses[rung] = loss;
}

void SuccessiveHalving::leave(JobId job) {
  Trial& trial = find(job);
  const bool was_stopped = trial.max_steps == 0;
  trial.max_steps = 0;
  if (!was_stopped) trial.losses.erase(trial.losses.lower_bound(trial.step), trial.losses.end());
}

std::int64_t SuccessiveHalving::hold_step(JobId job) const {
  const Trial& trial = find(job);
  const std::int64_t rung = rungs_.from(trial.step);
  return rung < trial.max_steps ? rung : kNoStep;
}

bool SuccessiveHalving::waits(JobId job) const { return find(job).losses.contains(hold_step(job)); }

/// Nobody can still come there, and somebody has.
bool SuccessiveHalving::is_decidable(std::int64_t rung) const {
  const auto is_there = [&](const Trial& trial) { return trial.losses.contains(rung); };
  return std::ranges::any_of(trials_, is_there) &&
         std::ranges::all_of(trials_, [&](const Trial& trial) {
           return rung >= trial.max_steps || is_there(trial);
         });
}

/// Those that are there, best first. One that went on before counts as one of the best.
std::vector<SuccessiveHalving::Trial*> SuccessiveHalving::ranking(std::int64_t rung) {
  std::vector<Trial*> there;
  for (Trial& trial : trials_) {
    if (trial.losses.contains(rung)) there.push_back(&trial);
  }
  const auto key = [&](const Trial* trial) {
    const double loss = trial->losses.at(rung);
    const bool is_past = trial->job.valid() && trial->step > rung;
    const bool is_finite = std::isfinite(loss);
    return std::tuple(!is_past, !is_finite, is_finite ? loss : 0.0);
  };
  std::ranges::stable_sort(there, {}, key);
  return there;
}

void SuccessiveHalving::decide(std::int64_t rung, std::vector<Verdict>& verdicts) {
  const std::vector<Trial*> there = ranking(rung);
  const int going_on = std::max(1, static_cast<int>(there.size()) / rungs_.eta);
  for (std::size_t i = 0; i < there.size(); ++i) {
    Trial& trial = *there[i];
    if (!trial.job.valid() || trial.max_steps == 0 || trial.step > rung) continue;
    const int rank = static_cast<int>(i) + 1;
    const bool goes_on = rank <= going_on;
    verdicts.push_back({.job = trial.job,
                        .goes_on = goes_on,
                        .rung = rung,
                        .loss = trial.losses.at(rung),
                        .rank = rank,
                        .of = static_cast<int>(there.size()),
                        .going_on = going_on});
    if (goes_on) trial.step = rung + 1;
    if (!goes_on) trial.max_steps = 0;
  }
}

std::vector<SuccessiveHalving::Verdict> SuccessiveHalving::decide() {
  std::vector<Verdict> verdicts;
  for (std::int64_t rung = rungs_.min_iter; rung != kNoStep && is_decidable(rung);
       rung = rungs_.from(rung + 1)) {
    decide(rung, verdicts);
  }
  return verdicts;
}

}  // namespace spillway
