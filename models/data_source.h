#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace spillway {

/// Samples by number. Immutable, so any thread may read. A sample is `sample_elements()` int64.
class DataSource {
 public:
  virtual ~DataSource() = default;
  virtual std::uint64_t num_samples() const = 0;
  virtual std::int64_t sample_elements() const = 0;
  /// Writes sample `index` < num_samples(); `out` holds sample_elements() values.
  virtual void read(std::uint64_t index, std::span<std::int64_t> out) const = 0;
};

/// Training and evaluation part of one source; they share no sample.
struct DataSplit {
  std::shared_ptr<const DataSource> train;
  std::shared_ptr<const DataSource> eval;  ///< null: no evaluation
};

/// Bytes of one or more files (a folder stands for the regular files below it, in sorted order)
/// as tokens 0..255: sample i is bytes [i*T, i*T + T], T = `sequence_length`, so T + 1 tokens.
/// The last `eval_fraction` of the samples are for evaluation.
/// Throws ConfigError (field data.path or data.eval_fraction) for a missing or empty file, or
/// less than one sample in a part.
DataSplit open_bytes(const std::vector<std::string>& paths, std::int64_t sequence_length,
                     double eval_fraction);

/// The sample that position `position` = step * batch + i of a job reads: position % N under a
/// permutation of [0, N) keyed by (seed, epoch = position / N).
std::uint64_t sample_at(std::uint64_t position, std::uint64_t num_samples, std::uint64_t seed);

}  // namespace spillway
