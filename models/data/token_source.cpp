#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <utility>

#include "models/data/token_files.h"
#include "spillway/data_source.h"
#include "spillway/error.h"

namespace spillway {
namespace {

/// Windows of tokens that share their last and first.
class TokenSource final : public DataSource {
 public:
  TokenSource(TokenFiles files, std::int64_t sequence_length)
      : files_(std::move(files)), length_(sequence_length) {}

  std::uint64_t num_samples() const override {
    return (files_.size() - 1) / static_cast<std::uint64_t>(length_);
  }
  std::int64_t sample_elements() const override { return length_ + 1; }
  void read(std::uint64_t index, std::span<std::byte> row) const override {
    const auto out = values_of<std::int64_t>(row);
    assert(index < num_samples() && out.size() == static_cast<std::size_t>(length_ + 1));
    files_.read(index * static_cast<std::uint64_t>(length_), out);
  }
  /// Each token is read once, though neighbours share one.
  void read_rows(std::uint64_t first, std::span<std::byte> rows) const override {
    const auto out = values_of<std::int64_t>(rows);
    const auto length = static_cast<std::size_t>(length_);
    const std::size_t num_rows = out.size() / (length + 1);
    assert(first + num_rows <= num_samples() && out.size() == num_rows * (length + 1));
    std::vector<std::int64_t> tokens(num_rows * length + 1);
    files_.read(first * length, tokens);
    for (std::size_t i = 0; i < num_rows; ++i) {
      std::ranges::copy(std::span(tokens).subspan(i * length, length + 1),
                        out.begin() + static_cast<std::ptrdiff_t>(i * (length + 1)));
    }
  }

 private:
  TokenFiles files_;
  std::int64_t length_;
};

/// `unit`: what the files' tokens are called.
DataSplit open_windows(TokenFiles files, const std::string& unit, std::int64_t sequence_length,
                       double eval_fraction) {
  const std::uint64_t size = files.size();
  const auto source = std::make_shared<TokenSource>(std::move(files), sequence_length);
  if (source->num_samples() > 0) return split(source, eval_fraction);
  throw ConfigError(
      "data.path", 0,
      fmt::format("has {} {}, but a sample needs {}, one more than its sequence length; add "
                  "data or use shorter sequences",
                  size, unit, sequence_length + 1));
}

void check_length(std::int64_t sequence_length) {
  if (sequence_length >= 1) return;
  throw Error(fmt::format("a sample has a sequence length of at least 1, not {}", sequence_length));
}

std::size_t bytes_per_token(TokenType dtype) { return dtype == TokenType::uint16 ? 2 : 4; }

}  // namespace

DataSplit open_bytes(const std::vector<std::string>& paths, std::int64_t sequence_length,
                     double eval_fraction) {
  check_length(sequence_length);
  return open_windows(TokenFiles(paths), "bytes", sequence_length, eval_fraction);
}

DataSplit open_tokens(const std::vector<std::string>& paths, TokenType dtype,
                      std::int64_t vocab_size, std::int64_t sequence_length, double eval_fraction) {
  check_length(sequence_length);
  TokenFiles files(paths, bytes_per_token(dtype));
  files.check(vocab_size);
  return open_windows(std::move(files), "tokens", sequence_length, eval_fraction);
}

}  // namespace spillway
