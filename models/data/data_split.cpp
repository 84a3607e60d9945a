#include <fmt/format.h>

#include <cassert>
#include <cmath>
#include <sstream>
#include <utility>

#include "spillway/data_source.h"
#include "spillway/error.h"

namespace spillway {
namespace {

/// Samples [first, first + count) of another source.
class Part final : public DataSource {
 public:
  Part(std::shared_ptr<const DataSource> all, std::uint64_t first, std::uint64_t count)
      : all_(std::move(all)), first_(first), count_(count) {}

  std::uint64_t num_samples() const override { return count_; }
  std::int64_t sample_elements() const override { return all_->sample_elements(); }
  DType dtype() const override { return all_->dtype(); }
  void read(std::uint64_t index, std::span<std::byte> row) const override {
    assert(index < count_);
    all_->read(first_ + index, row);
  }
  void read_rows(std::uint64_t first, std::span<std::byte> rows) const override {
    all_->read_rows(first_ + first, rows);
  }

 private:
  std::shared_ptr<const DataSource> all_;  // shared: both parts of a split read it
  std::uint64_t first_, count_;
};

[[noreturn]] void reject(double eval_fraction, const std::string& problem) {
  std::ostringstream text;
  text << "is " << eval_fraction << ", " << problem;
  throw ConfigError("data.eval_fraction", 0, text.str());
}

std::uint64_t count_eval(std::uint64_t samples, double eval_fraction) {
  const auto eval =
      static_cast<std::uint64_t>(std::llround(static_cast<double>(samples) * eval_fraction));
  const bool no_eval = eval_fraction > 0 && eval == 0;
  if (!no_eval && eval < samples) return eval;
  reject(eval_fraction, fmt::format("which leaves none of the {} samples for {}", samples,
                                    no_eval ? "evaluation; raise it, or use 0 for no evaluation"
                                            : "training; lower it"));
}

}  // namespace

void DataSource::read_rows(std::uint64_t first, std::span<std::byte> rows) const {
  const std::size_t row = static_cast<std::size_t>(sample_elements()) * size_of(dtype());
  for (; !rows.empty(); rows = rows.subspan(row)) read(first++, rows.first(row));
}

DataSplit split(std::shared_ptr<const DataSource> all, double eval_fraction) {
  if (!(eval_fraction >= 0 && eval_fraction < 1)) {
    reject(eval_fraction, "must be at least 0 (no evaluation) and below 1");
  }
  const std::uint64_t eval = count_eval(all->num_samples(), eval_fraction);
  const std::uint64_t train = all->num_samples() - eval;
  DataSplit parts;
  if (eval > 0) parts.eval = std::make_shared<Part>(all, train, eval);
  parts.train = std::make_shared<Part>(std::move(all), 0, train);
  return parts;
}

}  // namespace spillway
