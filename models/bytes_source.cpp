#include <cassert>
#include <cmath>
#include <sstream>

#include "core/error.h"
#include "models/byte_files.h"
#include "models/data_source.h"

namespace spillway {
namespace {

/// Samples [first, first + count) of the files.
class BytesSource final : public DataSource {
 public:
  BytesSource(std::shared_ptr<const ByteFiles> files, std::int64_t sequence_length,
              std::uint64_t first, std::uint64_t count)
      : files_(std::move(files)), length_(sequence_length), first_(first), count_(count) {}

  std::uint64_t num_samples() const override { return count_; }
  std::int64_t sample_elements() const override { return length_ + 1; }
  void read(std::uint64_t index, std::span<std::int64_t> out) const override {
    assert(index < count_ && out.size() == static_cast<std::size_t>(length_ + 1));
    files_->read((first_ + index) * static_cast<std::uint64_t>(length_), out);
  }

 private:
  std::shared_ptr<const ByteFiles> files_;  // shared: both parts of a split read them
  std::int64_t length_;
  std::uint64_t first_, count_;
};

std::uint64_t count_samples(const ByteFiles& files, std::int64_t sequence_length) {
  const std::uint64_t samples = (files.size() - 1) / static_cast<std::uint64_t>(sequence_length);
  if (samples > 0) return samples;
  std::ostringstream problem;
  problem << "holds " << files.size() << " bytes, less than one sample of sequence length "
          << sequence_length << " and one more; give more text or shorter sequences";
  throw ConfigError("data.path", 0, problem.str());
}

/// Rounded to the nearest sample.
std::uint64_t count_eval(std::uint64_t samples, double eval_fraction) {
  const auto eval =
      static_cast<std::uint64_t>(std::llround(static_cast<double>(samples) * eval_fraction));
  const bool no_eval = eval_fraction > 0 && eval == 0;
  if (!no_eval && eval < samples) return eval;
  std::ostringstream problem;
  problem << "is " << eval_fraction << ", which leaves no sample of " << samples << " for "
          << (no_eval ? "evaluation; raise it, or 0 for none" : "training; lower it");
  throw ConfigError("data.eval_fraction", 0, problem.str());
}

}  // namespace

DataSplit open_bytes(const std::vector<std::string>& paths, std::int64_t sequence_length,
                     double eval_fraction) {
  if (sequence_length < 1) {
    throw Error("a sample has a sequence length of at least 1, not " +
                std::to_string(sequence_length));
  }
  if (!(eval_fraction >= 0 && eval_fraction < 1)) {
    std::ostringstream problem;
    problem << "is " << eval_fraction << ", must be at least 0 (no evaluation) and below 1";
    throw ConfigError("data.eval_fraction", 0, problem.str());
  }
  auto files = std::make_shared<const ByteFiles>(paths);
  const std::uint64_t samples = count_samples(*files, sequence_length);
  const std::uint64_t eval = count_eval(samples, eval_fraction), train = samples - eval;
  DataSplit split;
  split.train = std::make_shared<BytesSource>(files, sequence_length, 0, train);
  if (eval > 0) split.eval = std::make_shared<BytesSource>(files, sequence_length, train, eval);
  return split;
}

}  // namespace spillway
