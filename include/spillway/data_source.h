#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "spillway/augment.h"
#include "spillway/spec.h"

namespace spillway {

/// Samples by number, each a row of `sample_elements()` values. Always the same, and any thread may
/// read: a source that can no longer give the values that it gave before throws.
class DataSource {
 public:
  virtual ~DataSource() = default;
  virtual std::uint64_t num_samples() const = 0;
  virtual std::int64_t sample_elements() const = 0;
  /// Of the values: i64 or f32.
  virtual DType dtype() const { return DType::i64; }
  /// Writes sample `index` < num_samples(). `row` holds its values and is aligned for them.
  virtual void read(std::uint64_t index, std::span<std::byte> row) const = 0;
  /// Writes samples from `first` on, as many as `rows` has room for, one behind the other.
  virtual void read_rows(std::uint64_t first, std::span<std::byte> rows) const;
};

/// A row of a source as its values.
template <typename Value>
std::span<Value> values_of(std::span<std::byte> row) {
  return {reinterpret_cast<Value*>(row.data()), row.size() / sizeof(Value)};
}

/// Training and evaluation part of one source; they share no sample.
struct DataSplit {
  std::shared_ptr<const DataSource> train;
  std::shared_ptr<const DataSource> eval;  ///< null: no evaluation
  Augment augment;                         ///< of training samples; null: they stay as they are
};

/// The last `eval_fraction` of the samples, rounded to whole ones, are for evaluation.
/// Throws ConfigError (`data.eval_fraction`) where that leaves a part without a sample.
DataSplit split(std::shared_ptr<const DataSource> all, double eval_fraction);

/// Bytes of one or more files (a folder stands for the regular files below it, in sorted order)
/// as tokens 0..255: sample i is bytes [i*T, i*T + T], T = `sequence_length`, so T + 1 tokens.
/// Split as by split().
/// Throws ConfigError (field data.path or data.eval_fraction) for a missing or empty file, or
/// less than one sample in a part.
DataSplit open_bytes(const std::vector<std::string>& paths, std::int64_t sequence_length,
                     double eval_fraction);

/// As open_bytes(), of tokens that are `dtype`, uint16 or uint32, little-endian: files as
/// tokenizers write them. Reads everything once. Throws ConfigError as open_bytes(), `data.dtype`
/// for another type, and `data.path` for a file that does not divide into tokens and for a token
/// that is not below `vocab_size`.
DataSplit open_tokens(const std::vector<std::string>& paths, const std::string& dtype,
                      std::int64_t vocab_size, std::int64_t sequence_length, double eval_fraction);

/// Handwritten digits as lines of comma-separated whole numbers, in files named as for
/// open_bytes(): 8 x 8 pixels from 0 to 16 and the digit. A sample is the 65 values of a line.
/// Split as by split(). Throws ConfigError as open_bytes(), and for another line.
///
/// Source: Alpaydin and Kaynak, "Optical recognition of handwritten digits", 1998, as scikit-learn
/// ships them.
DataSplit open_digits(const std::vector<std::string>& paths, double eval_fraction);

/// The sample that position `position` = step * batch + i of a job reads: position % N under a
/// permutation of [0, N) keyed by (seed, epoch = position / N).
std::uint64_t sample_at(std::uint64_t position, std::uint64_t num_samples, std::uint64_t seed);

}  // namespace spillway
