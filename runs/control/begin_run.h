#pragma once

#include <iosfwd>
#include <optional>
#include <vector>

#include "runs/config/findings.h"
#include "runs/control/open_run.h"
#include "runs/folder/output_folder.h"

namespace spillway {

/// What happens to a run that is in the folder already.
enum class Earlier { refuse, overwrite, resume };

/// Begins a run of the given trials, which may share devices as submit_new_run() says. Writes
/// nothing before the configuration is valid and every trial fits. Checks the folder before
/// planning, to report problems early, and again under its lock. Returns nothing if `earlier` is
/// resume and another process has begun the run in the meantime. Notes for the user go to `notes`.
/// Throws ConfigErrors or ConfigError, DoesNotFit, IoError.
std::optional<OpenRun> begin_run(const std::vector<Trial>& given, Findings findings,
                                 const OutputFolder& folder, const RunResources& resources,
                                 Earlier earlier, std::ostream& notes);

}  // namespace spillway
