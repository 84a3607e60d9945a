#pragma once

#include <filesystem>
#include <string>

#include "spillway/strategy_config.h"

namespace spillway {

/// Reads a strategy, see docs/formats.md. Throws ConfigError (`train.strategy`) that names the
/// file, the line, the value and the remedy.
StrategyConfig read_strategy(const std::filesystem::path& file);

/// Writes such a file; `comment` is one line at its head. Throws ConfigError (`field`) if it cannot
/// be written.
void write_strategy(const std::filesystem::path& file, const StrategyConfig& strategy,
                    const std::string& comment, const std::string& field);

}  // namespace spillway
