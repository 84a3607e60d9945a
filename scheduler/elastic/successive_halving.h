#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "scheduler/plan/program.h"
#include "spillway/ids.h"

namespace spillway {

/// The steps min_iter * eta^k, at which trials are compared.
struct Rungs {
  std::int64_t min_iter = 1;  ///< at least 1
  int eta = 2;                ///< at least 2

  /// The least one from this step on; kNoStep where it would be too large.
  std::int64_t from(std::int64_t step) const;
};

/// (rung, loss), in the order of rungs.
using RungLosses = std::vector<std::pair<std::int64_t, double>>;

/// What a trial is compared by: at each rung the mean of its losses, one a step, since the rung
/// before. Takes losses one by one and keeps none of them.
struct RungMeans {
  std::int64_t step = 0;  ///< losses taken
  double sum = 0;         ///< of those since the last rung, from the left
  RungLosses means;

  void add(double loss, const Rungs& rungs);
};

/// Which trials of a sweep go on: at the rungs each waits for all that can
/// still get there; then the best floor(n / eta) of them, at least one, go on. Pure, and a function
/// of losses alone, whoever comes first.
/// Source: Jamieson and Talwalkar, Non-stochastic best arm identification, 2016, one bracket;
/// losses that are not finite are the worst, ties go to the trial that was entered first.
class SuccessiveHalving {
 public:
  /// What becomes of a job that waits at a rung.
  struct Verdict {
    JobId job;
    bool goes_on = false;
    std::int64_t rung = 0;
    double loss = 0;
    int rank = 1, of = 1;  ///< among the trials that came to the rung; 1: the best
    int going_on = 1;      ///< of these
  };

  SuccessiveHalving(std::int64_t min_iter, int eta) : rungs_{min_iter, eta} {}

  /// A trial that begins after `step` of `max_steps` steps: at the rungs before it went on. It is
  /// not at a rung until reach() says so, also of those.
  void enter(JobId job, std::int64_t step, std::int64_t max_steps);
  /// One that has ended before, with what it said at rungs that were decided.
  void enter_ended(const RungLosses& losses);
  /// The job has come to this rung, below its steps.
  void reach(JobId job, std::int64_t rung, double loss);
  /// The job has ended, whole or not, and gets to no further rung. Where it waits it counts no
  /// more.
  void leave(JobId job);

  /// The rung where the job is to wait, or waits; kNoStep: it does so no more.
  std::int64_t hold_step(JobId job) const;
  /// Whether the job has come to the rung where it is held.
  bool waits(JobId job) const;
  /// Of all rungs to which nobody can still come: who waited there, by rank.
  std::vector<Verdict> decide();

 private:
  struct Trial {
    JobId job;                              ///< not valid: it has ended before
    std::int64_t step = 0;                  ///< went on at the rungs before
    std::int64_t max_steps = 0;             ///< reaches no rung from here on
    std::map<std::int64_t, double> losses;  ///< by rung
  };
  const Trial& find(JobId job) const;
  Trial& find(JobId job);
  bool is_decidable(std::int64_t rung) const;
  std::vector<Trial*> ranking(std::int64_t rung);
  void decide(std::int64_t rung, std::vector<Verdict>& verdicts);

  Rungs rungs_;
  std::vector<Trial> trials_;  // as entered
  std::int64_t decided_ = 0;   // the last rung
};

}  // namespace spillway
