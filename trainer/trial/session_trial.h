#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "scheduler/elastic/heuristic.h"
#include "spillway/results.h"
#include "spillway/trial_config.h"
#include "trainer/checkpoint/trial_history.h"
#include "trainer/compute/training_job.h"
#include "trainer/planning/plan_trial.h"
#include "trainer/profile/profile_cache.h"
#include "trainer/runtime/state_exchange.h"
#include "trainer/torch/kernel_flags.h"
#include "trainer/trial/trial_checkpoints.h"
#include "trainer/trial/trial_lifecycle.h"

namespace spillway {

/// The lanes of a trial: how many it may have, and who decides.
struct TrialLanes {
  int requested = 1;  ///< the plan may have fewer
  int max = 1;
  bool is_auto = false;      ///< `data_parallel` was kAutoDataParallel
  bool set_by_user = false;  ///< by Session::resize()
  std::vector<std::shared_ptr<const Heuristic>> rules;
  std::vector<DeviceId> avoided;  ///< devices that take no lane
  SpeedCurve speed;               ///< as predicted, for the allocator `fill`
  std::string reason;             ///< for the plan that begins with the next commit
};

/// What the user last asked of a trial.
enum class TrialRequest : std::uint8_t { run, pause, stop };

/// How a trial is saved whose state hosts shard.
struct ShardedSaving {
  std::unique_ptr<RemoteState> remote;  ///< of host 0
  std::unique_ptr<StateSender> sender;  ///< of another host
  /// The next step should be saved, although no checkpoint is due. Of another host: it asks for
  /// that. Any thread.
  std::atomic<bool> is_wanted = false;
  std::optional<std::int64_t> step;      ///< that is being saved. Of another host: before it sends
  std::optional<std::int64_t> asked_at;  ///< of host 0: step with which another host has asked
  std::atomic<bool> has_answered = false;  ///< a later step has been saved. Any thread
  std::exception_ptr problem;  ///< of host 0: why the final weights could not be handed out
  bool is_used() const { return remote || sender; }
};

/// A trial of a session, from its submission on. During a run its job, model and checkpoints do not
/// change; the session's mutex guards what does.
struct SessionTrial {
  TrialConfig config;
  std::shared_ptr<const Model> model;
  KernelFlags flags;  ///< as submitted
  Contract contract;  ///< empty until somebody asks: it takes reading all samples
  Profile profile;
  MeasuredAt measured_at;                                ///< of the profile, unless it is estimated
  std::map<std::string, std::vector<LayerTimes>> times;  ///< by kind of device, where measured
  PlannedTrial planned;                                  ///< as submitted
  std::unique_ptr<TrainingJob> job;
  std::unique_ptr<TrialCheckpoints> checkpoints;  ///< null: none
  Bytes checkpoint_growth = 0;  ///< disk space that they may take beyond what they took before
  std::int64_t first_step = 0;  ///< committed before this session
  TrialLifecycle lifecycle;
  TrialResult result;    ///< without the lists, which are in the history
  TrialHistory history;  ///< from the checkpoint that it started from on; has the latest changes
  std::string early_stop_reason;
  double started_s = 0, last_s = 0;
  std::shared_ptr<const JobPlan> plan;  ///< from the next commit on; null: it had ended before
  TrialLanes lanes;
  TrialRequest request = TrialRequest::run;
  HostTeam team;      ///< the hosts for which it was planned last
  int exchange = -1;  ///< its number among the trials that hosts train together
  ShardedSaving sharded;
  std::optional<std::int64_t> interrupted_at;  ///< it waits for the hosts to agree, after that step
  bool is_evaluation = false;     ///< of another trial, on other data: it trains nothing
  bool is_continued = false;      ///< it ended in this session before, under another number
  std::int64_t rested_step = -1;  ///< where it rested last; -1: nowhere
  /// Waits for the user alone.
  bool is_paused() const {
    const bool waits =
        lifecycle.phase() == TrialPhase::at_until || lifecycle.phase() == TrialPhase::suspended;
    return waits && request != TrialRequest::stop;
  }
  /// Where it waits for the user.
  std::int64_t until() const {
    const bool waits = config.until > 0 && config.until < config.train.max_steps;
    return waits ? config.until : kNoStep;
  }
  /// Its state at home is that after its last step.
  bool rests() const { return is_paused() && rested_step == result.steps; }
  bool ended() const { return lifecycle.ended(); }
};

}  // namespace spillway
