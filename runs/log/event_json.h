#pragma once

#include <optional>
#include <vector>

#include "runs/config/sweep.h"
#include "runs/log/run_json.h"
#include "spillway/session.h"

/// The lines of a run's event log. The first is a run_event, the last, where the run came to its
/// end, an end_event; between them is what the session reports, in its order.
namespace spillway {

/// Raised when lines change so that older programs would read them wrongly.
inline constexpr int kEventFormat = 2;
/// From this one on each line has a hash.
inline constexpr int kHashedFormat = 2;
inline constexpr const char* kRepairedEvent = "repaired";

/// {"event": "run"}: what is known before it. `trials` by their ids; `planned` as simulated.
Json run_event(const std::vector<Trial>& trials, const Session& session,
               const std::optional<RunResult>& planned);
/// {"event": "state" | "step" | "eval" | ...}.
Json to_json(const SessionEvent& event);
/// {"event": "restart"}: a later program goes on with the trials of these numbers.
/// `planned` as in run_event().
Json restart_event(const std::vector<std::size_t>& trials, const Session& session,
                   const std::optional<RunResult>& planned);
/// {"event": "resumed"}: `event`, and what the trial had said up to its step, as far as `result`
/// still has it.
Json resumed_event(const SessionEvent& event, const TrialResult& result, const TrainConfig& train);
/// {"event": "end"}: devices, bytes and times.
Json end_event(const RunResult& result);

}  // namespace spillway
