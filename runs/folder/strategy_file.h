#pragma once

#include <filesystem>

#include "spillway/strategy_config.h"

namespace spillway {

/// Reads a strategy, see docs/formats.md. Throws ConfigError (`train.strategy`) that names the
/// file, the line, the value and the remedy.
StrategyConfig read_strategy(const std::filesystem::path& file);

}  // namespace spillway
