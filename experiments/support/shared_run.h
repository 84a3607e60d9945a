#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "scheduler/simulation/controlled_shell.h"

/// Whole simulated runs, in which an allocator shares the devices as in a session.
namespace spillway::experiments {

/// A job that may change its lanes while it runs.
struct ElasticJob {
  double arrival_s = 0;
  int priority = 1;
  SpeedCurve speed{};                                 ///< as known at its arrival; steps/s
  std::vector<std::shared_ptr<const JobPlan>> plans;  ///< on 1, 2, ... lanes, as many as it can use
  double growth_s = 0, shrink_s = 0;                  ///< delay from decision to effect
};

struct SharedRun {
  EngineConfig engine;
  VirtualCosts costs;
  std::string_view allocator;
  bool decide_at_commits = false;  ///< decisions at all of them, besides those of a session
};

struct JobTimes {
  double arrived_s = 0, started_s = 0, ended_s = 0;
};

struct SharedOutcome {
  std::vector<JobTimes> jobs;
  double makespan_s = 0;
  double given_share = 0;  ///< share of device time held by a job
  double busy_share = 0;   ///< share of device time spent computing
  int resizes = 0;
};

/// Throws Error if a job fails.
SharedOutcome run(const SharedRun& run, const std::vector<ElasticJob>& jobs);

}  // namespace spillway::experiments
