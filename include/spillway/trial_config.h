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

/// Checkpoints of a trial, in a folder of its own; see docs/formats.md. They are written at commits
/// while the trial trains, at its end, and when it is stopped. If one cannot be written, the older
/// ones stay and the trial continues.
struct CheckpointConfig {
  std::filesystem::path folder;  ///< empty: none are written
  std::int64_t every_steps = 0;  ///< 0: not by steps
  double every_s = 0;            ///< 0: not by time
  int keep = 2;                  ///< checkpoints kept, at least 1
  /// Continue from the newest intact checkpoint, or from the beginning without one, even if a
  /// journal says that the trial has ended.
  bool resume = false;
};

/// A model to train: what, on which data, and how.
struct TrialConfig {
  std::string name;       ///< in results and messages
  std::string client_id;  ///< chosen by the submitter; a session takes each id once; empty: none
  ModelFactory model;     ///< makes the model
  std::shared_ptr<const DataSplit> data;  ///< training and evaluation samples
  TrainConfig train;                      ///< how it trains
  /// The trial waits, paused, once it has committed this many steps, until Session::extend(). Its
  /// schedule, contract and bits are those of a trial that never waits. 0: it does not wait.
  std::int64_t until = 0;
  /// Early stopping never stops this trial. It compares others with it where it went on before.
  bool exempt_from_early_stopping = false;
  CheckpointConfig checkpoint;  ///< where and how often it is saved
  /// What else decides the bits, as text by field: what `model` and `data` compute beyond shapes
  /// and samples. Compared when the trial is resumed.
  std::map<std::string, std::string> contract;
  std::filesystem::path weights_file;  ///< final weights as safetensors; empty: not written
  /// Keeps the final weights in memory, outside of SessionConfig::host_memory, for
  /// Session::weights().
  bool keep_weights = false;

  /// Throws ConfigErrors for everything wrong in `train` and, if set, in `model`.
  void validate() const;
};

/// The differences between a trial and its clone.
struct CloneChanges {
  std::string name;       ///< in results and messages; empty: `client_id`
  std::string client_id;  ///< like TrialConfig::client_id
  TrainValues values;     ///< from its first step on
  /// Its length; 0: that of the source. A longer one extends the schedule of the source, see
  /// TrainConfig::extended_from.
  std::int64_t max_steps = 0;
  std::int64_t until = 0;                   ///< where it waits, like TrialConfig::until
  std::filesystem::path checkpoint_folder;  ///< of its own
  std::filesystem::path weights_file;       ///< final weights; empty: not written
};

}  // namespace spillway
