#pragma once

#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "runs/control/open_run.h"
#include "spillway/results.h"

namespace spillway {

/// The trials of a host that knows nothing but where host 0 listens: it gets the configuration from
/// there. Throws Error if nobody answers; ConfigError.
std::vector<Trial> invited_trials(const std::string& endpoint,
                                  const std::vector<std::string>& overrides);

struct JoinedTraining {
  RunResult result;
  std::optional<HostsConfig> next;  ///< with which this host goes on if host 0 is lost
};

/// Trains those of `all` trials that host 0 trains, as another host. Host 0 writes all outputs,
/// this one writes nothing unless host 0 is lost. `wants_stop` is called about ten times a second;
/// true: all trials end on this host. Throws like begin_run(); HostLost if no other host can take
/// the place of host 0.
JoinedTraining join_training(const std::vector<Trial>& all, const RunResources& resources,
                             const std::function<bool()>& wants_stop, std::ostream& log);

}  // namespace spillway
