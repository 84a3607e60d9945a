#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runs/log/step_metrics.h"
#include "spillway/results.h"

namespace spillway {

/// CRC-32C. Source: Castagnoli et al., "Optimization of Cyclic Redundancy-Check Codes", 1993.
std::uint32_t crc32c(std::string_view bytes);

/// A record of an event file: the length of `payload`, its checksum, `payload`, its checksum.
/// Source: TensorFlow, "TFRecord and tf.train.Example", which also masks the checksums.
std::string tfrecord(std::string_view payload);

/// Removes the event files that TensorboardFile has written to a folder. Throws IoError.
void remove_tensorboard_files(const std::filesystem::path& folder);

/// What TensorBoard shows of a trial besides its steps.
struct TensorboardTrial {
  std::string name;
  std::vector<std::pair<std::string, std::string>> parameters;  ///< swept (key, value as text)
  double begin_s = 0;  ///< Unix time at which the clock of the run was 0
};

/// Writes the metrics of one trial as an event file of TensorBoard, with its swept values for the
/// HParams tab. If earlier rows change, a new file with all rows begins. It tells a TensorBoard
/// that has read the old one to forget its steps. Old files are emptied and not removed, because a
/// TensorBoard that reads one would never go on to the next.
class TensorboardFile {
 public:
  TensorboardFile(std::filesystem::path folder, TensorboardTrial trial);

  /// Adds the next step.
  void add(const StepMetrics& row);
  /// The trial has ended. It may be restarted later.
  void end(TrialState state);
  /// Starts over, before the first step.
  void restart();
  /// Writes what was added. Throws IoError.
  void flush();

 private:
  void add_event(double time_s, std::int64_t step, std::string_view content);

  std::filesystem::path folder_;
  TensorboardTrial trial_;
  std::filesystem::path path_;  ///< empty: not made since the restart
  std::string pending_;
  double time_s_ = 0;  ///< of the last row
};

}  // namespace spillway
