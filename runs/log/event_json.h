#pragma once

#include <optional>
#include <vector>

#include "runs/config/sweep.h"
#include "runs/log/run_json.h"
#include "runs/log/run_log.h"
#include "spillway/session.h"

/// The lines of a run's event log. The first is a run_event; the last, once the run has ended, is
/// an end_event; between them are the session's events in order.
namespace spillway {

/// Incremented when lines change so that older programs would misread them.
inline constexpr int kEventFormat = 3;
/// The first format whose lines have a hash.
inline constexpr int kHashedFormat = 2;
inline constexpr const char* kRepairedEvent = "repaired";
inline constexpr const char* kCalledEvent = "called";

/// {"event": "run"}: the trials, ordered by id, and the simulated totals.
Json run_event(const std::vector<Trial>& trials, const Session& session,
               const std::optional<RunResult>& planned);
/// {"event": "state" | "step" | "eval" | ...}.
Json to_json(const SessionEvent& event);
/// {"event": "added"}: the run gets these trials of the session, from number `first` on.
Json added_event(const std::vector<Trial>& trials, std::size_t first, const Session& session);
/// {"event": "restart"}: the trials of the session, from number `first` on, train on, unless they
/// have ended. These are their numbers in the log.
Json restart_event(const std::vector<Trial>& trials, const std::vector<std::size_t>& numbers,
                   std::size_t first, const Session& session,
                   const std::optional<RunResult>& planned);
/// {"event": "called"}: the user has called this for a trial.
Json called_event(std::size_t trial, TrialCall call);
/// Likewise TrialCall::extend, to a length.
Json extended_event(std::size_t trial, std::int64_t max_steps,
                    std::optional<LrExtension> extension);
/// Likewise TrialCall::set. `changes`: all of the trial.
Json set_event(std::size_t trial, const std::vector<TrainChange>& changes);
/// {"event": "added"}: the last trial of the session is a clone. `source`: its number in the log.
Json cloned_event(const std::vector<Trial>& trials, std::size_t source, const Session& session);
/// {"event": "resumed"}: `event`, and the trial's earlier steps as far as `result` has them.
Json resumed_event(const SessionEvent& event, const TrialResult& result, const TrainConfig& train);
/// {"event": "end"}: devices, bytes and times.
Json end_event(const RunResult& result);

}  // namespace spillway
