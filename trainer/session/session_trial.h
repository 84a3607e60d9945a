#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "scheduler/elastic/heuristic.h"
#include "spillway/results.h"
#include "spillway/trial_config.h"
#include "trainer/checkpoint/trial_history.h"
#include "trainer/compute/training_job.h"
#include "trainer/planning/plan_trial.h"
#include "trainer/session/trial_checkpoints.h"

namespace spillway {

/// A trial of a session, from its submission on.
struct SessionTrial {
  TrialConfig config;
  std::shared_ptr<const Model> model;
  Contract contract;  ///< empty until it is asked for: all samples are read for it
  Profile profile;
  std::map<std::string, std::vector<LayerTimes>> times;  ///< by kind of device, where measured
  PlannedTrial planned;                                  ///< as submitted
  std::unique_ptr<TrainingJob> job;
  std::unique_ptr<TrialCheckpoints> checkpoints;  ///< null: none
  std::int64_t first_step = 0;                    ///< committed before this session
  TrialResult result;                             ///< without the lists, which are in the history
  TrialHistory history;  ///< of this session, and of the checkpoint that it begins with
  double started_s = 0, last_s = 0;
  std::shared_ptr<const JobPlan> plan;  ///< that it has, or will have at its next commit; null:
                                        ///< the trial ended before this session
  int lanes_asked = 1;                  ///< the plan may have fewer
  int most_lanes = 1;                   ///< that it may ever have
  std::vector<std::shared_ptr<const Heuristic>> rules;  ///< of its autoscaler
  std::vector<DeviceId> avoided;                        ///< devices that take no lane of it
  std::string lanes_reason;     ///< of the plan that comes with its next commit
  bool lanes_fixed = false;     ///< by resize()
  bool stranded = false;        ///< no device that is there can run it
  bool releasing = false;       ///< its last checkpoint is made; another one must not begin
  std::string stopped_because;  ///< early, as was decided; empty: it was not
  Bytes checkpoint_growth = 0;  ///< on disk, the most, beyond what lay there when it came
  bool ended() const { return result.state > TrialState::running; }
};

}  // namespace spillway
