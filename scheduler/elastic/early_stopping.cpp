#include "scheduler/elastic/early_stopping.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <set>
#include <string_view>
#include <tuple>

#include "spillway/philox.h"

namespace spillway {
namespace {

constexpr std::size_t kFewestOthers = 3;        // as in Ray Tune's MedianStoppingRule
constexpr double kSlower = 0.8, kFaster = 1.2;  // as Jaderberg et al.
constexpr double kWorst = std::numeric_limits<double>::infinity();

/// Of an even number the mean of the two in the middle. Changes the order.
double median(std::vector<double>& values) {
  const auto half = values.begin() + std::ssize(values) / 2;
  std::ranges::nth_element(values, half);
  if (values.size() % 2 == 1) return *half;
  return (*std::max_element(values.begin(), half) + *half) / 2;
}

}  // namespace

EarlyStopping::EarlyStopping(const StoppingRule& rule) : rule_(rule) {
  const int num = rule.kind == EarlyTerminateKind::hyperband ? rule.brackets : 1;
  Rungs rungs = rule.rungs;
  double halvings = std::pow(rule.rungs.eta, num - 1);
  for (int b = 0; b < num; ++b) {
    brackets_.push_back(rungs);
    rungs.min_iter = rungs.after(rungs.min_iter);
    shares_.push_back(std::ceil(num * halvings / (num - b)));
    halvings /= rule.rungs.eta;
  }
  dealt_.resize(brackets_.size());
}

/// The bracket that is furthest behind its share; of several the first.
std::size_t EarlyStopping::deal() {
  const auto num = static_cast<double>(trials_.size() + 1);
  double all = 0;
  for (const double share : shares_) all += share;
  const auto lacks = [&](std::size_t b) {
    return shares_[b] * num - all * static_cast<double>(dealt_[b]);
  };
  std::size_t next = 0;
  for (std::size_t b = 1; b < shares_.size(); ++b) {
    if (lacks(b) > lacks(next)) next = b;
  }
  ++dealt_[next];
  return next;
}

void EarlyStopping::add(Trial trial) {
  trial.bracket = deal();
  trial.next = brackets_[trial.bracket].min_iter;
  if (has_room()) trial.state = State::begun;
  if (is_limited()) trial.begin = now_;
  trials_.push_back(std::move(trial));
}

void EarlyStopping::enter(JobId job, std::int64_t step, std::int64_t max_steps) {
  add({.job = job, .step = step, .max_steps = max_steps, .losses = {}});
}

void EarlyStopping::enter_ended(const RungLosses& losses, std::int64_t max_steps) {
  add({.job = {},
       .step = losses.empty() ? 0 : losses.back().first,
       .max_steps = max_steps,
       .losses = {losses.begin(), losses.end()},
       .ended = true});
}

const EarlyStopping::Trial& EarlyStopping::find(JobId job) const {
  const auto found = std::ranges::find(trials_, job, &Trial::job);
  assert(found != trials_.end());
  return *found;
}

EarlyStopping::Trial& EarlyStopping::find(JobId job) {
  return const_cast<Trial&>(std::as_const(*this).find(job));
}

void EarlyStopping::reach(JobId job, std::int64_t rung, double loss) {
  find(job).losses[rung] = loss;
}

void EarlyStopping::leave(JobId job) {
  Trial& trial = find(job);
  trial.ended = true;
  if (trial.state == State::out) return;
  trial.losses.erase(trial.losses.lower_bound(trial.step), trial.losses.end());
}

std::int64_t EarlyStopping::hold_step(JobId job) const {
  const Trial& trial = find(job);
  if (trial.ended || trial.state == State::out) return kNoStep;
  if (trial.state == State::entered) return trial.step;
  const std::int64_t rung = brackets_[trial.bracket].from(trial.step);
  return rung < trial.max_steps ? rung : kNoStep;
}

bool EarlyStopping::compares(JobId job, std::int64_t step) const {
  return find(job).state == State::begun && hold_step(job) == step;
}

bool EarlyStopping::waits(JobId job) const {
  const Trial& trial = find(job);
  if (trial.state == State::entered) return !trial.ended;
  return trial.losses.contains(hold_step(job));
}

/// When the trial comes to its next rung, or to its end if that makes room. The rung where a trial
/// would have come next is also the time when the others learn that it has failed.
std::int64_t EarlyStopping::event(const Trial& trial) const {
  if (is_limited()) return trial.begin + std::min(trial.next, trial.max_steps);
  return trial.next < trial.max_steps ? trial.next : kNoStep;
}

bool EarlyStopping::has_room() const {
  if (!is_limited()) return true;
  return std::ranges::count(trials_, State::begun, &Trial::state) < rule_.most_at_once;
}

void EarlyStopping::begin_next(std::vector<Verdict>& verdicts) {
  for (Trial& trial : trials_) {
    if (trial.state != State::entered) continue;
    if (!has_room()) return;
    trial.state = State::begun;
    trial.begin = now_;
    if (trial.job.valid() && !trial.ended) verdicts.push_back({.job = trial.job, .goes_on = true});
  }
}

std::vector<EarlyStopping::Verdict> EarlyStopping::decide() {
  std::vector<Verdict> verdicts;
  for (std::size_t b = 0; b < brackets_.size(); ++b) {
    do {
      begin_next(verdicts);
    } while (decide_round(b, verdicts));
  }
  return verdicts;
}

/// The next one; false if somebody has still to come.
bool EarlyStopping::decide_round(std::size_t bracket, std::vector<Verdict>& verdicts) {
  Round round;
  std::int64_t time = kNoStep;
  for (Trial& trial : trials_) {
    if (trial.state != State::begun || trial.bracket != bracket) continue;
    if (event(trial) < time) round.clear();
    time = std::min(time, event(trial));
    if (time != kNoStep && event(trial) == time) round.push_back(&trial);
  }
  const auto has_come = [](const Trial* trial) {
    const bool has_rung = trial->next < trial->max_steps;
    return has_rung && (trial->losses.contains(trial->next) || trial->step > trial->next);
  };
  const auto is_there = [&](const Trial* trial) { return trial->ended || has_come(trial); };
  if (round.empty() || !std::ranges::all_of(round, is_there)) return false;
  now_ = time;
  std::map<std::int64_t, Round> at_rungs;
  for (Trial* trial : round) {
    if (!has_come(trial)) {
      trial->state = State::out;
      continue;
    }
    at_rungs[trial->next].push_back(trial);
    trial->next = brackets_[bracket].after(trial->next);
  }
  for (const auto& [rung, there] : at_rungs) decide_rung(rung, there, verdicts);
  return true;
}

/// One that has passed the rung before this session goes on, whatever the others have lost since.
void EarlyStopping::decide_rung(std::int64_t rung, const Round& round,
                                std::vector<Verdict>& verdicts) {
  const auto judge = [&] {
    if (rule_.kind == EarlyTerminateKind::median) return compare_with_median(rung, round);
    return takes_states() ? exploit(rung, round) : rank(rung, round);
  };
  for (const auto& [trial, verdict] : judge()) {
    const bool was_past = trial->step > rung;
    if (!trial->ended && !was_past) verdicts.push_back(verdict);
    if (verdict.goes_on || was_past) {
      trial->step = std::max(trial->step, rung + 1);
    } else {
      trial->state = State::out;
    }
  }
}

/// The less, the better.
double EarlyStopping::score(double loss) const {
  if (!std::isfinite(loss)) return kWorst;
  return rule_.goal == MetricGoal::maximize ? -loss : loss;
}

/// Those that have come to the rung until now, as entered.
EarlyStopping::Round EarlyStopping::all_at(std::size_t bracket, std::int64_t rung) {
  Round all;
  for (Trial& trial : trials_) {
    if (trial.bracket == bracket && trial.next > rung && trial.losses.contains(rung))
      all.push_back(&trial);
  }
  return all;
}

/// Among all, best first. With hyperband, one that went on before counts as one of the best.
EarlyStopping::Judged EarlyStopping::rank(std::int64_t rung, const Round& round) {
  Round all = all_at(round[0]->bracket, rung);
  std::ranges::stable_sort(all, {}, [&](const Trial* trial) {
    const bool is_first = !is_limited() && trial->job.valid() && trial->step > rung;
    return std::tuple(!is_first, score(trial->losses.at(rung)));
  });
  const int going_on = std::max(1, static_cast<int>(all.size()) / rule_.rungs.eta);
  const std::set<const Trial*> decided(round.begin(), round.end());
  Judged verdicts;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!decided.contains(all[i])) continue;
    const int rank = static_cast<int>(i) + 1;
    verdicts.emplace_back(all[i], Verdict{.job = all[i]->job,
                                          .goes_on = rank <= going_on,
                                          .rung = rung,
                                          .loss = all[i]->losses.at(rung),
                                          .rank = rank,
                                          .of = static_cast<int>(all.size()),
                                          .going_on = going_on});
  }
  return verdicts;
}

/// Best first.
EarlyStopping::Judged EarlyStopping::exploit(std::int64_t rung, const Round& round) {
  Round all = all_at(round[0]->bracket, rung);
  const auto loss = [&](const Trial* trial) { return trial->losses.at(rung); };
  std::ranges::stable_sort(all, {}, [&](const Trial* trial) { return score(loss(trial)); });
  const std::size_t num = all.size();
  const auto quantile =
      static_cast<std::size_t>(std::ceil(rule_.quantile * static_cast<double>(num)));
  const std::size_t taking = std::min(quantile, num / 2);
  const auto is_finite = [&](const Trial* trial) { return std::isfinite(loss(trial)); };
  const auto sources = static_cast<std::size_t>(
      std::count_if(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(taking), is_finite));
  const std::set<const Trial*> decided(round.begin(), round.end());
  Judged verdicts;
  for (std::size_t i = 0; i < num; ++i) {
    if (!decided.contains(all[i])) continue;
    Verdict verdict{.job = all[i]->job, .goes_on = true, .rung = rung, .loss = loss(all[i])};
    verdict.rank = static_cast<int>(i) + 1;
    verdict.of = verdict.going_on = static_cast<int>(num);
    if (i + taking >= num && sources > 0) {
      const auto number = static_cast<std::uint32_t>(all[i] - trials_.data());
      const auto at = static_cast<std::uint64_t>(rung);
      const PhiloxBlock drawn =
          philox({number, static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(at >> 32)},
                 rule_.seed);
      const Trial& source = *all[drawn[0] % sources];
      if (!source.ended && source.step <= rung) verdict.source = source.job;
      verdict.factor = drawn[1] % 2 == 0 ? kSlower : kFaster;
    }
    verdicts.emplace_back(all[i], verdict);
  }
  return verdicts;
}

/// As entered.
EarlyStopping::Judged EarlyStopping::compare_with_median(std::int64_t rung, const Round& round) {
  struct Summary {
    double best = kWorst, mean = 0;
  };
  const auto summarise = [&](const Trial& trial) {
    Summary summary;
    const auto end = trial.losses.upper_bound(rung);
    for (auto at = trial.losses.begin(); at != end; ++at) {
      summary.best = std::min(summary.best, score(at->second));
      summary.mean += score(at->second);
    }
    summary.mean /= static_cast<double>(std::distance(trial.losses.begin(), end));
    return summary;
  };
  std::map<const Trial*, Summary> all;
  for (const Trial* trial : all_at(round[0]->bracket, rung)) all[trial] = summarise(*trial);
  const double sign = rule_.goal == MetricGoal::maximize ? -1 : 1;
  Judged verdicts;
  for (Trial* trial : round) {
    if (!trial->losses.contains(rung)) continue;
    std::vector<double> others;
    for (const auto& [other, summary] : all) {
      if (other != trial) others.push_back(summary.mean);
    }
    Verdict verdict{.job = trial->job, .goes_on = true, .rung = rung};
    verdict.loss = trial->losses.at(rung);
    verdict.of = static_cast<int>(others.size());
    if (others.size() >= kFewestOthers) {
      const double middle = median(others), best = all.at(trial).best;
      verdict.goes_on = best <= middle;
      verdict.best = sign * best;
      verdict.median = sign * middle;
    }
    verdicts.emplace_back(trial, verdict);
  }
  return verdicts;
}

std::string EarlyStopping::explain(const Verdict& verdict) const {
  const bool by_loss = rule_.metric == to_string(MetricKind::eval_loss);
  const std::string metric = !evaluates() ? "mean loss"
                             : by_loss    ? "evaluation loss"
                                          : rule_.metric;
  if (rule_.kind == EarlyTerminateKind::median) {
    return fmt::format(
        "at step {} its best {} so far was {:f}, worse than {:f}, the median of the means of {} "
        "other trials",
        verdict.rung, metric, verdict.best, verdict.median, verdict.of);
  }
  return fmt::format("at step {} it was number {} of {}{} by {} ({:f}); the best {} continued",
                     verdict.rung, verdict.rank, verdict.of,
                     rule_.brackets > 1 ? " in its bracket" : "", metric, verdict.loss,
                     verdict.going_on);
}

}  // namespace spillway
