#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "runs/log/run_log.h"
#include "runs/text/table.h"

namespace spillway {

/// "2.4130"; "-" if there is none.
std::string loss_text(const std::optional<double>& loss);

/// A row for each of these trials, in their order: short name, swept values, results.
Table trial_table(const RunLog& run, const std::vector<std::size_t>& trials);

}  // namespace spillway
