#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

namespace spillway {

/// The jobs of a host, all at rest. Hosts number the jobs that they train together in the same way.
struct RestingJobs {
  int begun = 0;                      ///< those numbered below have begun on this host
  std::map<int, std::int64_t> steps;  ///< that are committed, of those that have not ended
  bool must_restart = false;          ///< they go on in new sessions only
  bool operator==(const RestingJobs&) const = default;
};

/// What a host tells all others once its jobs rest.
struct HostWord {
  std::int64_t round = 0;
  std::set<int> lost;  ///< hosts
  RestingJobs jobs;
  bool operator==(const HostWord&) const = default;
};

/// How all hosts that are not lost go on.
struct Agreement {
  std::int64_t round = 0;
  std::set<int> hosts;
  /// By job: the hosts that compute its next step, which are those that have committed fewest. The
  /// others wait for them.
  std::map<int, std::set<int>> computing;
  /// By job: the other hosts, which have committed the next step and wait. After the next commit of
  /// such a job hosts have to agree again.
  std::map<int, std::set<int>> ahead;
  bool must_restart = false;  ///< on any host: the jobs of all go on in new sessions
  bool operator==(const Agreement&) const = default;
};

/// One of the hosts that train jobs together: they agree on who is left, and on who computes the
/// next step of each job. Pure; each host has its own, and no host leads. Each has a copy of every
/// job's state. Bits do not depend on who computes a step, so a host that is a step behind needs
/// nothing from those ahead: it repeats the step with others that are behind, or alone. If each has
/// only parts of the state, the session restarts instead when a host is lost or behind.
///
/// When a host is lost, those left begin a round: each lets its jobs rest at their last commit and
/// tells the others how far they are and whom it has lost. It goes on once it has heard the same
/// round and the same losses from all that are left.
class Fleet {
 public:
  Fleet(int number, int size);

  /// The host is lost.
  void lose(int host);
  /// A step was dropped on this host alone, or a job that others wait for has made its step.
  void renew();
  /// Begins a round in any case: what this host has told in an open one does not hold any more.
  void restart();
  /// `word`: what the host has told.
  void hear(int from, const HostWord& word);
  /// The jobs of this host rest, as this round has asked. More may have begun since the last call.
  void rest(std::int64_t round, const RestingJobs& jobs);

  /// What changed in these calls, each once: the jobs have to rest; this is for all hosts that are
  /// left; the jobs go on.
  bool take_call_to_rest();
  std::optional<HostWord> take_word();
  std::optional<Agreement> take_agreement();

  std::int64_t round() const { return round_; }
  /// Whether jobs may run.
  bool has_agreed() const { return has_agreed_; }
  const std::set<int>& lost() const { return lost_; }
  /// The hosts that are left.
  std::set<int> hosts() const;

 private:
  void begin_round(std::int64_t round);

  int number_, size_;
  std::int64_t round_ = 0;
  bool has_agreed_ = true;
  bool calls_to_rest_ = false;
  std::set<int> lost_;
  std::optional<RestingJobs> resting_;  // in this round
  std::map<int, HostWord> words_;       // the latest of each host, this one included
};

}  // namespace spillway
