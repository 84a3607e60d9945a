#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "spillway/strategy_config.h"

namespace spillway {

/// A strategy and the trials that have it.
struct TrialsStrategy {
  std::vector<std::string> trials;  ///< patterns of their names
  StrategyConfig strategy;
};

/// Reads the strategy of a trial, see docs/formats.md. Throws ConfigError (`train.strategy`) that
/// names the file, the line, the value and the remedy.
StrategyConfig read_strategy(const std::filesystem::path& file, const std::string& trial);

/// Writes such a file; `comment` is one line at its head. Throws ConfigError (`field`) if it cannot
/// be written.
void write_strategy(const std::filesystem::path& file, const StrategyConfig& strategy,
                    const std::string& comment, const std::string& field);
/// The same with strategies for several trials.
void write_strategies(const std::filesystem::path& file,
                      const std::vector<TrialsStrategy>& strategies, const std::string& comment,
                      const std::string& field);

}  // namespace spillway
