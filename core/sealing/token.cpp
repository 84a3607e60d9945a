#include "core/sealing/token.h"

#include <fmt/format.h>
#include <sodium.h>

#include <fstream>
#include <iterator>
#include <span>
#include <string>

#include "spillway/error.h"

namespace spillway {
namespace {

Key hash_of(std::string_view text, std::span<const unsigned char> key) {
  static const bool is_ready = sodium_init() >= 0;
  if (!is_ready) throw Error("libsodium does not start on this machine");
  Key hash;
  crypto_generichash(hash.data(), hash.size(), reinterpret_cast<const unsigned char*>(text.data()),
                     text.size(), key.data(), key.size());
  return hash;
}

}  // namespace

Token::Token(std::string_view secret) : secret_(hash_of(secret, {})) {}

Key Token::key(std::string_view purpose) const { return hash_of(purpose, secret_); }

Token read_token(const std::filesystem::path& file) {
  namespace fs = std::filesystem;
  constexpr std::size_t kFewest = 32;
  const auto refuse = [&](const std::string& problem) {
    throw ConfigError("hosts.token_file", 0, fmt::format("is {}, {}", file.string(), problem));
  };
  std::error_code error;
  const fs::perms others =
      fs::status(file, error).permissions() & (fs::perms::group_all | fs::perms::others_all);
  if (error || !fs::is_regular_file(file)) {
    refuse(
        "which does not exist or is not a regular file; make one with: (umask 077; openssl rand "
        "-hex 32 > token)");
  }
  if (others != fs::perms::none) {
    refuse(fmt::format("which other users may open; run: chmod 600 {}", file.string()));
  }
  std::ifstream stream(file, std::ios::binary);
  std::string secret{std::istreambuf_iterator<char>(stream), {}};
  if (!stream.is_open() || stream.bad()) refuse("which cannot be read");
  while (!secret.empty() && (secret.back() == '\n' || secret.back() == '\r')) secret.pop_back();
  if (secret.size() < kFewest) {
    refuse(
        fmt::format("which has {} characters, fewer than {}; make one with: openssl rand -hex 32",
                    secret.size(), kFewest));
  }
  return Token(secret);
}

}  // namespace spillway
