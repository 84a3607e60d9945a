#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "runs/log/run_json.h"
#include "runs/log/run_log.h"

namespace spillway {

/// A call of the user for one trial of a run.
struct CallForTrial {
  TrialCall call = TrialCall::none;
  std::string trial;
  std::optional<std::int64_t> steps;  ///< of TrialCall::extend: its new length
};

/// The event of the log that records the call. Throws ConfigError if the run has no such trial, or
/// the call means nothing in its state.
Json event_of(const CallForTrial& call, const RunLog& run);

/// The call as a request to the process that trains the run, see runs/folder/requests.h.
Json request_of(const CallForTrial& call);
/// Throws Error for a request of another kind.
CallForTrial call_of(const Json& request);

}  // namespace spillway
