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

  /// The first rung from this step on; kNoStep if it would overflow.
  std::int64_t from(std::int64_t step) const;
};

/// (rung, loss), in the order of rungs.
using RungLosses = std::vector<std::pair<std::int64_t, double>>;

/// The losses by which trials are compared: at each rung the mean of the losses of all steps since
/// the previous rung.
struct RungMeans {
  std::int64_t step = 0;  ///< losses taken
  double sum = 0;         ///< of those since the last rung, from the left
  RungLosses means;

  void add(double loss, const Rungs& rungs);
};

/// Early stopping of a sweep. At each rung a trial waits for all trials that can still reach it;
/// then the best floor(n / eta), at least one, continue. Pure: depends on losses, not on their
/// order of arrival. Source: Jamieson and Talwalkar, Non-stochastic best arm identification, 2016,
/// one bracket; losses that are not finite are the worst, ties go to the trial that was entered
/// first.
class SuccessiveHalving {
 public:
  /// The decision on a job that waits at a rung.
  struct Verdict {
    JobId job;
    bool goes_on = false;
    std::int64_t rung = 0;
    double loss = 0;
    int rank = 1, of = 1;  ///< among the trials that came to the rung; 1: the best
    int going_on = 1;      ///< of these
  };

  SuccessiveHalving(std::int64_t min_iter, int eta) : rungs_{min_iter, eta} {}

  /// Adds a trial that starts after `step` of `max_steps` steps and has passed all earlier rungs.
  /// reach() must be called for those rungs, too.
  void enter(JobId job, std::int64_t step, std::int64_t max_steps);
  /// Adds a trial that has ended, with its losses at decided rungs.
  void enter_ended(const RungLosses& losses);
  /// The job has reached this rung, which is below its last step.
  void reach(JobId job, std::int64_t rung, double loss);
  /// The job has ended and reaches no further rung. It no longer counts at the rung where it waits.
  void leave(JobId job);

  /// The rung where the job has to wait, or waits; kNoStep: none.
  std::int64_t hold_step(JobId job) const;
  /// Whether the job waits at its rung.
  bool waits(JobId job) const;
  /// Decides all rungs that no other trial can still reach. A trial that comes later is compared
  /// when it gets there; those that went on before stay in. Ordered by rung, then rank.
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
};

}  // namespace spillway
