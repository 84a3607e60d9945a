#include "models/token_files.h"

#include <algorithm>
#include <cassert>

#include "core/config_check.h"

namespace spillway {
namespace {

std::string quoted(const MappedFile& file) { return "'" + file.path() + "'"; }

}  // namespace

TokenFiles::TokenFiles(const std::vector<std::string>& paths, std::size_t bytes_per_token)
    : files_(map_files(paths)), bytes_per_token_(bytes_per_token) {
  ConfigCheck check;
  std::uint64_t end = 0;
  for (const MappedFile& file : files_) {
    const std::size_t bytes = file.bytes().size();
    check.require(bytes % bytes_per_token == 0, "data.path",
                  quoted(file) + " has " + std::to_string(bytes) + " bytes, no multiple of the " +
                      std::to_string(bytes_per_token) +
                      " of a token; check the file and data.dtype");
    ends_.push_back(end += bytes / bytes_per_token);
  }
  check.finish();
}

std::int64_t TokenFiles::token(const MappedFile& file, std::size_t number) const {
  std::int64_t value = 0;
  const auto bytes = file.bytes().subspan(number * bytes_per_token_, bytes_per_token_);
  for (std::size_t b = bytes.size(); b-- > 0;) {
    value = value << 8 | std::to_integer<std::int64_t>(bytes[b]);
  }
  return value;
}

void TokenFiles::read(std::uint64_t begin, std::span<std::int64_t> out) const {
  assert(begin + out.size() <= size());
  auto f = static_cast<std::size_t>(std::ranges::upper_bound(ends_, begin) - ends_.begin());
  while (!out.empty()) {
    const std::size_t skipped = begin - (f == 0 ? 0 : ends_[f - 1]);
    const std::size_t count = std::min<std::size_t>(out.size(), ends_[f] - begin);
    for (std::size_t i = 0; i < count; ++i) out[i] = token(files_[f], skipped + i);
    out = out.subspan(count);
    begin = ends_[f++];
  }
}

void TokenFiles::check(std::int64_t vocab_size) const {
  ConfigCheck check;
  for (const MappedFile& file : files_) {
    const std::size_t num_tokens = file.bytes().size() / bytes_per_token_;
    std::size_t i = 0;
    while (i < num_tokens && token(file, i) < vocab_size) ++i;
    if (i == num_tokens) continue;
    check.require(false, "data.path",
                  quoted(file) + " has token " + std::to_string(token(file, i)) + " at position " +
                      std::to_string(i) + ", but model.vocab_size is " +
                      std::to_string(vocab_size) + "; raise it, or check data.dtype");
  }
  check.finish();
}

}  // namespace spillway
