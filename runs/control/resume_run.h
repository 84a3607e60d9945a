#pragma once

#include <iosfwd>
#include <optional>
#include <vector>

#include "runs/config/findings.h"
#include "runs/control/open_run.h"
#include "runs/control/trial_call.h"
#include "runs/folder/output_folder.h"

namespace spillway {

/// What is resumed beside the trials that have not ended.
struct ResumeWish {
  bool retry_failed = false;         ///< trials that failed
  std::optional<CallForTrial> call;  ///< a trial that was paused, stopped, or is extended
  std::optional<Json> request;       ///< `set` or `clone`, to carry out before the trials train
};

/// Opens the run in the folder again. Trials that have ended keep their results, unless the wish is
/// another, or they have more steps than before. `all` may contain more trials than the run.
/// Rebuilds damaged or missing files and reports them to `notes`. Returns nothing if all trials
/// have ended. Throws what begin_run() throws, and InUse.
std::optional<OpenRun> resume_run(std::vector<Trial> all, Findings findings,
                                  const OutputFolder& folder, const RunResources& resources,
                                  const ResumeWish& wish, std::ostream& notes);

/// Throws ConfigError if the folder has no run to resume.
void require_begun(const OutputFolder& folder);

}  // namespace spillway
