#pragma once

#include <cstddef>
#include <filesystem>
#include <iosfwd>
#include <string>

#include "runs/log/run_log.h"
#include "runs/output/run_documents.h"

/// Reports of a finished or unfinished run, for people. `folder` is the run's.
namespace spillway {

/// Prints the table of trials by the run's metric, of the `top` best ones; the best trial, the
/// table of devices, planned and actual totals, and the outputs. Leaves out what an unfinished run
/// does not know yet.
void print_report(std::ostream& out, const RunLog& run, const std::filesystem::path& folder,
                  std::size_t top = kAllTrials);

/// "spillway resume 'runs/sweep'".
std::string resume_command(const std::filesystem::path& folder);

}  // namespace spillway
