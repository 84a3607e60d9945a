#pragma once

#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "runs/control/open_run.h"
#include "runs/folder/output_folder.h"
#include "spillway/results.h"

namespace spillway {

/// The trials of a host that knows nothing but where host 0 listens: it gets the configuration from
/// there. Throws Error if nobody answers; ConfigError.
std::vector<Trial> invited_trials(const std::string& endpoint,
                                  const std::vector<std::string>& overrides);

struct JoinedTraining {
  RunResult result;
  std::optional<HostsConfig> next;  ///< with which this host goes on if hosts meet again
};

/// Trains those of `all` trials that host 0 trains, as another host. Host 0 writes all outputs,
/// this one writes nothing unless host 0 is lost. `wants_stop` is called about ten times a second
/// while they train; true: all trials end on this host. Throws like begin_run(); HostLost if no
/// other host can take the place of host 0.
JoinedTraining join_training(const std::vector<Trial>& all, const RunResources& resources,
                             const std::function<bool()>& wants_stop, std::ostream& log);

/// A line that says where hosts meet again, and which of them this one is.
std::string next_host_text(const HostsConfig& next);

/// Before this host resumes the run in the place of host 0. It takes some time until the system
/// releases the lock of a machine that is lost. Throws Error if host 0 has stopped in order, which
/// ends the run for all; InUse.
void take_run_of_host_0(const OutputFolder& folder, const HostsConfig& next);

}  // namespace spillway
