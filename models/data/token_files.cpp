#include "models/data/token_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>

#include "core/base/config_check.h"

namespace spillway {
namespace {

constexpr std::size_t kBufferBytes = 32_KiB;

template <std::size_t width>
void decode(const std::byte* bytes, std::span<std::int64_t> out) {
  for (std::int64_t& token : out) {
    std::uint64_t value = 0;
    for (std::size_t b = 0; b < width; ++b) {
      value |= std::to_integer<std::uint64_t>(bytes[b]) << (8 * b);
    }
    token = static_cast<std::int64_t>(value);
    bytes += width;
  }
}

void decode(const std::byte* bytes, std::size_t width, std::span<std::int64_t> out) {
  if (width == 1) return decode<1>(bytes, out);
  if (width == 2) return decode<2>(bytes, out);
  decode<4>(bytes, out);
}

}  // namespace

TokenFiles::TokenFiles(const std::vector<std::string>& paths, std::size_t bytes_per_token)
    : files_(paths), bytes_per_token_(bytes_per_token) {
  assert(bytes_per_token == 1 || bytes_per_token == 2 || bytes_per_token == 4);
  ConfigCheck check;
  std::uint64_t end = 0;
  for (std::size_t f = 0; f < files_.num_files(); ++f) {
    check.require(
        files_.size(f) % bytes_per_token == 0, "data.path",
        fmt::format("'{}' has {} bytes, which is not a multiple of {}, the size of a token; check "
                    "the file and data.dtype",
                    files_.path(f), files_.size(f), bytes_per_token));
    ends_.push_back(end += files_.size(f) / bytes_per_token);
  }
  check.finish();
}

/// Tokens from `begin` on of one file.
void TokenFiles::read_file(std::size_t file, std::uint64_t begin,
                           std::span<std::int64_t> out) const {
  std::array<std::byte, kBufferBytes> block;
  while (!out.empty()) {
    const std::size_t count = std::min(out.size(), kBufferBytes / bytes_per_token_);
    files_.read(file, begin * bytes_per_token_, std::span(block).first(count * bytes_per_token_));
    decode(block.data(), bytes_per_token_, out.first(count));
    out = out.subspan(count);
    begin += count;
  }
}

void TokenFiles::read(std::uint64_t begin, std::span<std::int64_t> out) const {
  assert(begin + out.size() <= size());
  auto f = static_cast<std::size_t>(std::ranges::upper_bound(ends_, begin) - ends_.begin());
  while (!out.empty()) {
    const std::size_t skipped = begin - (f == 0 ? 0 : ends_[f - 1]);
    const std::size_t count = std::min<std::size_t>(out.size(), ends_[f] - begin);
    read_file(f, skipped, out.first(count));
    out = out.subspan(count);
    begin = ends_[f++];
  }
}

void TokenFiles::check_file(std::size_t file, std::int64_t vocab_size) const {
  std::array<std::int64_t, kBufferBytes / sizeof(std::int64_t)> tokens;
  const std::uint64_t num_tokens = files_.size(file) / bytes_per_token_;
  for (std::uint64_t begin = 0; begin < num_tokens; begin += tokens.size()) {
    const auto block =
        std::span(tokens).first(std::min<std::uint64_t>(tokens.size(), num_tokens - begin));
    read_file(file, begin, block);
    const auto stranger =
        std::ranges::find_if(block, [&](std::int64_t token) { return token >= vocab_size; });
    if (stranger == block.end()) continue;
    throw ConfigError(
        "data.path", 0,
        fmt::format("'{}' has token {} at position {}, but model.vocab_size is {}; raise it, or "
                    "check data.dtype",
                    files_.path(file), *stranger,
                    begin + static_cast<std::uint64_t>(stranger - block.begin()), vocab_size));
  }
}

void TokenFiles::check(std::int64_t vocab_size) const {
  ConfigCheck check;
  for (std::size_t f = 0; f < files_.num_files(); ++f) {
    check.run([&] { check_file(f, vocab_size); });
  }
  check.finish();
}

}  // namespace spillway
