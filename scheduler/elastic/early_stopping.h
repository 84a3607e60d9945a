#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/elastic/rungs.h"
#include "spillway/choices.h"
#include "spillway/ids.h"

namespace spillway {

/// Which trials of a sweep end early. A loss that is not finite is the worst, whatever the goal;
/// among equal losses the trial that was submitted first is the better one.
struct StoppingRule {
  EarlyTerminateKind kind = EarlyTerminateKind::hyperband;
  Rungs rungs;
  int brackets = 1;  ///< of hyperband; the first rung of the next is eta times as far
  int most_at_once = std::numeric_limits<int>::max();  ///< of asha and median: trials that train
  double quantile = 0.25;                              ///< of pbt
  std::uint64_t seed = 1;                              ///< of pbt
  std::string metric = "eval_loss";                    ///< EarlyTerminate::metric_name()
  MetricGoal goal = MetricGoal::minimize;
};

/// Early stopping of a sweep, in rounds. Time is counted in steps: a trial that has begun at time t
/// comes to its rung r at time t + r, however long that takes. Trials that come to rungs at the
/// same time are a round. Once all of them are there, and nobody comes earlier, the rule decides
/// which go on. So decisions depend on losses and on the order of submission, not on the order of
/// arrival.
///
/// - hyperband: all trials of a bracket begin at time 0, so each rung is one round. The best
///   floor(n / eta), at least one, go on. Trials are dealt to brackets by their number, in Li's
///   proportions. Source: Li et al., Hyperband, 2018.
/// - asha: `most_at_once` trials train at once; whoever ends makes room for the next. A trial goes
///   on if it is among the best floor(n / eta), at least one, of all n that have come to the rung
///   by then; otherwise it ends, as with Ray Tune's ASHAScheduler, and does not wait for a later
///   promotion. Source: Li et al., A system for massively parallel hyperparameter tuning, 2020.
/// - median: likewise, but a trial ends if its best loss at rungs so far is worse than the median,
///   over at least three other trials that have come to the rung by then, of the mean of their
///   losses at rungs. Source: Golovin et al., Google Vizier, 2017.
/// - pbt: all trials go on, and all begin at time 0. Of n that have come to the rung, the worst
///   ceil(quantile * n), at most n / 2, take over the state of one of as many best trials with a
///   finite loss, and its learning rate times 0.8 or 1.2. Both are drawn by seed, trial and rung.
///   If that trial has gone on before, because the other one came to the sweep later, nothing is
///   taken over. Source: Jaderberg et al., Population based training of neural networks, 2017;
///   quantiles as in Ray Tune's PopulationBasedTraining.
///
/// Pure. It saves nothing: a later session repeats all losses, and gets the same decisions.
class EarlyStopping {
 public:
  /// The decision on a job that waits at a rung, or to begin.
  struct Verdict {
    JobId job;
    bool goes_on = false;
    std::int64_t rung = 0;  ///< 0: it begins
    double loss = 0;
    int rank = 1, of = 1;         ///< among the trials that have come to the rung; 1: the best
    int going_on = 1;             ///< of these
    double best = 0, median = 0;  ///< by the median rule, of `of` trials: what it compared
    JobId source{};               ///< by pbt: the job whose state it takes over, if any
    double factor = 1;            ///< by pbt: of that job's learning rate
  };

  explicit EarlyStopping(const StoppingRule& rule);

  /// Adds a trial that starts after `step` of `max_steps` steps and has passed all earlier rungs.
  /// reach() must be called for those rungs, too.
  void enter(JobId job, std::int64_t step, std::int64_t max_steps);
  /// Adds a trial that has ended, with its losses at decided rungs.
  void enter_ended(const RungLosses& losses, std::int64_t max_steps);
  /// The job has reached this rung, which is below its last step.
  void reach(JobId job, std::int64_t rung, double loss);
  /// The job has ended and reaches no further rung. It no longer counts at the rung where it waits.
  void leave(JobId job);

  /// Where the job has to wait, or waits: its next rung, or where it starts until it may begin.
  /// kNoStep: nowhere.
  std::int64_t hold_step(JobId job) const;
  /// Whether the job is compared with others after this step.
  bool compares(JobId job, std::int64_t step) const;
  /// Whether the job waits for a decision, at its rung or to begin.
  bool waits(JobId job) const;
  /// Whether jobs take over states of others, which have to rest at the same rung.
  bool takes_states() const { return rule_.kind == EarlyTerminateKind::pbt; }
  /// Whether jobs have to be evaluated at rungs.
  bool evaluates() const { return rule_.metric != to_string(MetricKind::final_loss); }
  /// Decides all rounds that are complete. A trial that comes later is compared when it gets there;
  /// those that went on before stay in. Ordered by round, rung, then rank.
  std::vector<Verdict> decide();
  /// Why a job is stopped.
  std::string explain(const Verdict& verdict) const;

 private:
  enum class State : std::uint8_t { entered, begun, out };
  struct Trial {
    JobId job;  ///< not valid: it has ended before
    std::size_t bracket = 0;
    std::int64_t step = 0;                  ///< the job went on at the rungs before
    std::int64_t max_steps = 0;             ///< reaches no rung from here on
    std::map<std::int64_t, double> losses;  ///< by rung
    State state = State::entered;           ///< in the order of rounds; out: of all later ones
    bool ended = false;                     ///< the job, whatever the rounds say
    std::int64_t begin = 0;                 ///< its time
    std::int64_t next = 0;                  ///< its first rung that is not decided
  };
  using Round = std::vector<Trial*>;
  using Judged = std::vector<std::pair<Trial*, Verdict>>;

  void add(Trial trial);
  const Trial& find(JobId job) const;
  Trial& find(JobId job);
  std::size_t deal();
  bool is_limited() const {
    return rule_.kind == EarlyTerminateKind::asha || rule_.kind == EarlyTerminateKind::median;
  }
  std::int64_t event(const Trial& trial) const;
  bool has_room() const;
  void begin_next(std::vector<Verdict>& verdicts);
  bool decide_round(std::size_t bracket, std::vector<Verdict>& verdicts);
  void decide_rung(std::int64_t rung, const Round& round, std::vector<Verdict>& verdicts);
  double score(double loss) const;
  Round all_at(std::size_t bracket, std::int64_t rung);
  Judged rank(std::int64_t rung, const Round& round);
  Judged exploit(std::int64_t rung, const Round& round);
  Judged compare_with_median(std::int64_t rung, const Round& round);

  StoppingRule rule_;
  std::vector<Rungs> brackets_;
  std::vector<double> shares_;  // of the brackets
  std::vector<std::size_t> dealt_;
  std::vector<Trial> trials_;  // as entered
  std::int64_t now_ = 0;       // the time of the last round
};

}  // namespace spillway
