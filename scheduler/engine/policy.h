#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "spillway/choices.h"
#include "spillway/ids.h"

namespace spillway {

/// A unit that a device could run next, and its job.
struct Candidate {
  JobId job;
  int track = 0;
  int unit = 0;
  double remaining_s = 0;  ///< compute left in the whole job
  std::int64_t step = 0;
  std::uint64_t last_served = 0;  ///< number of the job's latest claim, over all jobs; 0: none yet
};

/// Ranks ready units; pure. Ties go to the unit with more resident weights and inputs on the
/// device, then to the lower job, then to the lower track.
class Policy {
 public:
  virtual ~Policy() = default;
  virtual std::string_view name() const = 0;
  /// The unit with the largest priority runs first. Called when a unit becomes ready and when its
  /// candidate changes, not at every choice, so a choice takes no longer with more jobs.
  virtual double priority(const Candidate& candidate) const = 0;
};

///   lrtf         the longest remaining time first. Source: Hydra, Sharded-LRTF
///   srtf         the shortest remaining time first
///   fifo         the lower job first
///   round_robin  the job that was served longest ago first
///   random       by a hash of job, track, unit and step: the same in every run
std::shared_ptr<const Policy> make_policy(PolicyKind kind);
/// Null for a name that is not among kPolicyNames.
std::shared_ptr<const Policy> make_policy(std::string_view name);

inline constexpr auto kPolicyNames = kNames<PolicyKind>;

}  // namespace spillway
