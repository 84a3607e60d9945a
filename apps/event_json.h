#pragma once

#include <optional>
#include <vector>

#include "apps/run_json.h"
#include "apps/sweep.h"
#include "trainer/session.h"

/// The lines of a run's event log. The first is a run_event, the last, where the run came to its
/// end, an end_event; between them is what the session reports, in its order.
namespace spillway {

/// Raised when lines change so that older programs would read them wrongly.
inline constexpr int kEventFormat = 1;

/// {"event": "run"}: what is known before it. `trials` by their ids; `planned` as simulated.
Json run_event(const std::vector<Trial>& trials, const Session& session,
               const std::optional<RunResult>& planned);
/// {"event": "state" | "step" | "eval"}.
Json to_json(const SessionEvent& event);
/// {"event": "end"}: devices, bytes and times.
Json end_event(const RunResult& result);

}  // namespace spillway
