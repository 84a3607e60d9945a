#pragma once

#include <filesystem>
#include <vector>

#include "apps/findings.h"
#include "apps/follow.h"
#include "apps/output_folder.h"
#include "apps/sweep.h"

namespace spillway {

/// Goes on with the run in the folder, whose trials these are: those that have ended stay as they
/// are, unless `retry_failed` takes up the failed ones. What is damaged or missing in the folder is
/// rebuilt from what is sound and told on the console. Throws as train() does, and InUse.
ExitCode resume_run(const std::vector<Trial>& all, Findings findings, const OutputFolder& folder,
                    bool retry_failed, const std::filesystem::path& pilot_cache,
                    const Console& console);

}  // namespace spillway
