#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/ids.h"
#include "core/units.h"

namespace spillway {

/// A unit that a device could run next.
struct Candidate {
  JobId job;
  int lane = 0;
  int unit = 0;
  double remaining_s = 0;    ///< compute left in the whole job
  Bytes resident_bytes = 0;  ///< of its weights and inputs on the device that asks
};

/// Ranks ready units; pure. Ties go to the unit with more resident bytes, then to the lower job,
/// then to the lower lane.
class Policy {
 public:
  virtual ~Policy() = default;
  virtual std::string_view name() const = 0;
  /// Larger runs first.
  virtual double priority(const Candidate& candidate) const = 0;
};

/// "fifo": lower job first. "lrtf": Sharded-LRTF, the longest remaining time first.
/// Source: Hydra, Sharded-LRTF. Null for another name.
std::shared_ptr<const Policy> make_policy(std::string_view name);

/// Position of the best candidate. `candidates` is not empty.
std::size_t pick(const Policy& policy, std::span<const Candidate> candidates);

}  // namespace spillway
