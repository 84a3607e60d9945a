#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "spillway/augment.h"
#include "spillway/choices.h"
#include "spillway/spec.h"

namespace spillway {

/// Numbered samples, each a row of `sample_elements()` values. The values never change, and any
/// thread may read: a source that can no longer return the same values throws.
class DataSource {
 public:
  virtual ~DataSource() = default;
  /// Number of samples.
  virtual std::uint64_t num_samples() const = 0;
  /// Values per sample.
  virtual std::int64_t sample_elements() const = 0;
  /// Type of the values: i64 or f32.
  virtual DType dtype() const { return DType::i64; }
  /// Writes sample `index` < num_samples() to `row`, which has the size of a sample and the
  /// alignment of its values.
  virtual void read(std::uint64_t index, std::span<std::byte> row) const = 0;
  /// Writes consecutive samples from `first` on, as many as `rows` has room for.
  virtual void read_rows(std::uint64_t first, std::span<std::byte> rows) const;
};

/// A row of a source as its values.
template <typename Value>
std::span<Value> values_of(std::span<std::byte> row) {
  return {reinterpret_cast<Value*>(row.data()), row.size() / sizeof(Value)};
}

/// Training and evaluation part of one source; they share no sample.
struct DataSplit {
  std::shared_ptr<const DataSource> train;  ///< training samples
  std::shared_ptr<const DataSource> eval;   ///< evaluation samples; null: no evaluation
  Augment augment;                          ///< changes training samples; null: nothing does
};

/// Reserves the last `eval_fraction` of the samples, rounded to whole samples, for evaluation.
/// Throws ConfigError (`data.eval_fraction`) if a part would have no sample.
DataSplit split(std::shared_ptr<const DataSource> all, double eval_fraction);

/// Bytes of one or more files as tokens 0..255; a folder stands for the regular files below it, in
/// sorted order. Sample i is the bytes [i*T, i*T + T] with T = `sequence_length`, so T + 1 tokens.
/// Split by split().
/// Throws ConfigError (`data.path`, `data.eval_fraction`) for a missing or empty file, or if a part
/// would have no sample.
DataSplit open_bytes(const std::vector<std::string>& paths, std::int64_t sequence_length,
                     double eval_fraction);

/// Like open_bytes(), for files of token numbers as tokenizers write them. Reads all files once.
/// Throws ConfigError like open_bytes(), and `data.path` for a file of incomplete tokens or with a
/// token that is not below `vocab_size`.
DataSplit open_tokens(const std::vector<std::string>& paths, TokenType dtype,
                      std::int64_t vocab_size, std::int64_t sequence_length, double eval_fraction);

/// Handwritten digits: lines of whole numbers, separated by commas, in files named as for
/// open_bytes(). A line is a sample: 8 x 8 pixels from 0 to 16 and the digit, 65 values. Split by
/// split(). Throws ConfigError like open_bytes(), and for any other line.
///
/// Source: Alpaydin and Kaynak, "Optical recognition of handwritten digits", 1998, as scikit-learn
/// ships them.
DataSplit open_digits(const std::vector<std::string>& paths, double eval_fraction);

/// The sample that position `position` = step * batch + i of a job reads: position % N under a
/// permutation of [0, N) keyed by (seed, epoch = position / N).
std::uint64_t sample_at(std::uint64_t position, std::uint64_t num_samples, std::uint64_t seed);

}  // namespace spillway
