#pragma once

#include <optional>
#include <vector>

#include "runs/config/sweep.h"
#include "runs/log/run_json.h"
#include "spillway/session.h"

/// The lines of a run's event log. The first is a run_event; the last, once the run has ended, is
/// an end_event; between them are the session's events in order.
namespace spillway {

/// Incremented when lines change so that older programs would misread them.
inline constexpr int kEventFormat = 2;
/// The first format whose lines have a hash.
inline constexpr int kHashedFormat = 2;
inline constexpr const char* kRepairedEvent = "repaired";

/// {"event": "run"}: the trials, ordered by id, and the simulated totals.
Json run_event(const std::vector<Trial>& trials, const Session& session,
               const std::optional<RunResult>& planned);
/// {"event": "state" | "step" | "eval" | ...}.
Json to_json(const SessionEvent& event);
/// {"event": "restart"}: a later process resumes the trials with these numbers.
Json restart_event(const std::vector<std::size_t>& trials, const Session& session,
                   const std::optional<RunResult>& planned);
/// {"event": "resumed"}: `event`, and the trial's earlier steps as far as `result` has them.
Json resumed_event(const SessionEvent& event, const TrialResult& result, const TrainConfig& train);
/// {"event": "end"}: devices, bytes and times.
Json end_event(const RunResult& result);

}  // namespace spillway
