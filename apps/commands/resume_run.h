#pragma once

#include <filesystem>
#include <vector>

#include "apps/commands/follow.h"
#include "runs/config/findings.h"
#include "runs/config/sweep.h"
#include "runs/folder/output_folder.h"

namespace spillway {

/// Goes on with the run in the folder, whose trials these are: those that have ended stay as they
/// are, unless `retry_failed` takes up the failed ones. What is damaged or missing in the folder is
/// rebuilt from what is sound and told on the console. Throws as train() does, and InUse.
ExitCode resume_run(const std::vector<Trial>& all, Findings findings, const OutputFolder& folder,
                    bool retry_failed, const std::filesystem::path& pilot_cache,
                    const Console& console);

}  // namespace spillway
