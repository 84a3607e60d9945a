#pragma once

#include <array>
#include <filesystem>
#include <string_view>

namespace spillway {

/// 32 secret bytes.
using Key = std::array<unsigned char, 32>;

/// The secret that the hosts of a run share.
class Token {
 public:
  explicit Token(std::string_view secret);
  /// The key for this purpose. Keys of other purposes do not give it away. A keyed BLAKE2b hash
  /// (Aumasson et al., 2013).
  Key key(std::string_view purpose) const;

 private:
  Key secret_;
};

/// Reads the secret from a file. Throws ConfigError (`hosts.token_file`) if it cannot be read, if
/// others than its owner may read it, or if it is too short to be a secret.
Token read_token(const std::filesystem::path& file);

}  // namespace spillway
