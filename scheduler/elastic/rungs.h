#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "scheduler/plan/program.h"

namespace spillway {

/// The steps at which trials are compared: min_iter * eta^k, or min_iter + k * interval.
struct Rungs {
  std::int64_t min_iter = 1;  ///< at least 1
  int eta = 2;                ///< at least 2
  std::int64_t interval = 0;  ///< 0: rungs are `eta` times as far apart

  /// The first rung from this step on; kNoStep if it would overflow.
  std::int64_t from(std::int64_t step) const;
  /// The rung after this one.
  std::int64_t after(std::int64_t rung) const { return rung == kNoStep ? kNoStep : from(rung + 1); }
};

/// (rung, loss), in the order of rungs.
using RungLosses = std::vector<std::pair<std::int64_t, double>>;

/// At each rung the mean of the training losses of all steps since the previous rung.
struct RungMeans {
  std::int64_t step = 0;  ///< losses taken
  double sum = 0;         ///< of those since the last rung, from the left
  RungLosses means;

  void add(double loss, const Rungs& rungs);
};

}  // namespace spillway
