#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "spillway/model_factory.h"
#include "spillway/train_config.h"

namespace spillway {

struct DataSplit;  // spillway/data_source.h

/// Generations of a trial's whole state, in a folder of its own; see docs/formats.md. Written at
/// commits while it trains on, at its end, and when it is stopped. One that cannot be written
/// leaves the older ones as they are and the trial running.
struct CheckpointConfig {
  std::filesystem::path folder;  ///< empty: none are written
  std::int64_t every_steps = 0;  ///< 0: not by steps
  double every_s = 0;            ///< 0: not by time
  int keep = 2;                  ///< generations, at least 1
  /// Go on from the newest that verifies; where there is none, from the beginning. Also where a
  /// journal says that the trial has ended.
  bool resume = false;
};

struct TrialConfig {
  std::string name;
  std::string client_id;  ///< the submitter's own: a session takes each once; empty: none
  ModelFactory model;
  std::shared_ptr<const DataSplit> data;
  TrainConfig train;
  CheckpointConfig checkpoint;
  /// What the bits depend on beside shapes, data and `train`, by field, as text: what `model` and
  /// `data` compute. Compared when the trial is resumed.
  std::map<std::string, std::string> contract;
  std::filesystem::path weights_file;  ///< final weights as safetensors; empty: not written

  /// Throws ConfigErrors for all that is wrong with `train` and, if there is one, with `model`.
  void validate() const;
};

}  // namespace spillway
