#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "scheduler/simulation/controlled_shell.h"

/// Whole simulated runs, with devices shared out by an allocator as in a session.
namespace spillway::experiments {

/// A job that may change its lanes while it runs.
struct ElasticJob {
  double arrival_s = 0;
  int priority = 1;
  SpeedCurve speed{};                                 ///< as known when it comes; steps/s
  std::vector<std::shared_ptr<const JobPlan>> plans;  ///< on 1, 2, ... lanes, as many as it can use
  double growth_s = 0, shrink_s = 0;  ///< from a decision until it can be carried out
};

struct SharedRun {
  EngineConfig engine;
  VirtualCosts costs;
  std::string_view allocator;
  bool decide_at_commits = false;  ///< at all of them, beside what a session decides at
};

struct JobTimes {
  double arrived_s = 0, started_s = 0, ended_s = 0;
};

struct SharedOutcome {
  std::vector<JobTimes> jobs;
  double makespan_s = 0;
  double given_share = 0;  ///< of all device time: a job had the device
  double busy_share = 0;   ///< of all device time: it computed
  int resizes = 0;
};

/// Throws Error where a job does not end well.
SharedOutcome run(const SharedRun& run, const std::vector<ElasticJob>& jobs);

}  // namespace spillway::experiments
