#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "spillway/strategy_config.h"
#include "spillway/train_config.h"

namespace spillway {

/// A strategy and the trials that have it.
struct TrialsStrategy {
  std::vector<std::string> trials;  ///< patterns of their names
  int devices = 0;                  ///< number with which they have it; 0: always
  StrategyConfig strategy;
};

/// Reads the strategy of a trial, or those by number of devices, see docs/formats.md. Throws
/// ConfigError (`train.strategy`) that names the file, the line, the value and the remedy, also if
/// the file has none for the trial, unless it has strategies by number of devices.
void read_strategies(const std::filesystem::path& file, const std::string& trial,
                     TrainConfig& train);

/// Writes such a file; `comment` is one line at its head. Throws ConfigError (`field`) if it cannot
/// be written.
void write_strategies(const std::filesystem::path& file,
                      const std::vector<TrialsStrategy>& strategies, const std::string& comment,
                      const std::string& field);

}  // namespace spillway
