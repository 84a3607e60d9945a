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
  int devices = 0;                  ///< on how many they have it; 0: on any number
  StrategyConfig strategy;
};

/// Sets the strategy of a trial, or its strategies by number of devices, see docs/formats.md.
/// Throws ConfigError (`train.strategy`) that names the file, the line, the value and the remedy. A
/// trial that no entry names is an error, unless the file has strategies by number of devices.
void read_strategies(const std::filesystem::path& file, const std::string& trial,
                     TrainConfig& train);

/// Writes such a file; `comment` is one line at its head. Throws ConfigError (`field`) if it cannot
/// be written.
void write_strategies(const std::filesystem::path& file,
                      const std::vector<TrialsStrategy>& strategies, const std::string& comment,
                      const std::string& field);

}  // namespace spillway
